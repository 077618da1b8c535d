//! Experiments on real kernels in network namespaces
