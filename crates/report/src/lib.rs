//! Tables, plots and pages from results
