//! Names of policies with their colour and marker.

use maud::{Markup, PreEscaped, html};

use crate::plot;

/// Policies of a run in their order; the place of one is its colour and marker everywhere.
pub(crate) struct Policies<'a>(pub Vec<&'a str>);

impl Policies<'_> {
    /// Colour and marker of a policy.
    pub fn index(&self, policy: &str) -> usize {
        let place = self.0.iter().position(|other| *other == policy);
        place.expect("policies come from the same cells")
    }

    /// Marker and name.
    pub fn label(&self, policy: &str) -> Markup {
        html! {
            span.policy { (PreEscaped(plot::swatch(self.index(policy)))) (policy) }
        }
    }

    /// All of them in a line.
    pub fn legend(&self) -> Markup {
        html! {
            p.legend {
                @for policy in &self.0 { (self.label(policy)) " " }
                span.hint { "Hollow markers: read with care, see the marks. Bars: range over repetitions." }
            }
        }
    }
}
