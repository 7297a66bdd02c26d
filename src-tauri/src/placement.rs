//! Where the popover goes, in physical pixels.

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// Between the popover and what it stands beside.
const GAP: f64 = 8.0;

/// The upper left corner of a popover of that size: in the middle below the icon, or in the upper right corner where
/// the icon's place is not known. It lies within the screen's free area as far as it fits.
pub fn corner(icon: Option<Area>, free: Area, width: f64, height: f64) -> (f64, f64) {
    let (x, y) = match icon {
        Some(icon) => (icon.x + (icon.width - width) / 2.0, icon.y + icon.height),
        None => (free.x + free.width - width - GAP, free.y + GAP),
    };
    let within = |wanted: f64, from: f64, span: f64, size: f64| wanted.min(from + span - size).max(from);
    (within(x, free.x, free.width, width), within(y, free.y, free.height, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Area = Area { x: 0.0, y: 24.0, width: 1440.0, height: 876.0 };

    #[test]
    fn below_the_icon_and_never_beyond_the_screen() {
        let icon = |x| Some(Area { x, y: 0.0, width: 30.0, height: 24.0 });
        assert_eq!(corner(icon(700.0), SCREEN, 400.0, 600.0), (515.0, 24.0));
        assert_eq!(corner(icon(1400.0), SCREEN, 400.0, 600.0), (1040.0, 24.0));
        assert_eq!(corner(icon(0.0), SCREEN, 400.0, 600.0), (0.0, 24.0));
        assert_eq!(corner(None, SCREEN, 400.0, 600.0), (1032.0, 32.0));
        assert_eq!(corner(None, SCREEN, 400.0, 2000.0), (1032.0, 24.0), "its upper edge is what stays in sight");
    }
}
