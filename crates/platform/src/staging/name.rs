//! Names and links of an archive, which may lead nowhere but into its own folder.

use stablehand_engine::upgrade::fault::Fault;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest path, and the longest target of a link.
pub(super) const LONGEST_BYTES: usize = 1024;
/// How deep folders may lie.
const DEEPEST: usize = 64;
/// How many links one path may pass, as the system counts them.
const MOST_LINKS: usize = 40;

/// The path of an entry below its folder; empty for the folder itself.
pub(super) fn inside(bytes: &[u8]) -> Result<PathBuf, Fault> {
    let leads_out = || Fault::LeadsOut(shown(bytes));
    if bytes.len() > LONGEST_BYTES {
        return Err(Fault::NoArchive(format!("it holds a path of {} bytes", bytes.len())));
    }
    if bytes.contains(&0) {
        return Err(leads_out());
    }
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(bytes)).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(leads_out()),
        }
    }
    if path.components().count() > DEEPEST {
        return Err(Fault::NoArchive(format!("it holds folders more than {DEEPEST} deep")));
    }
    Ok(path)
}

/// The beginning of a name, fit for a terminal.
pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        .chars()
        .map(|symbol| if symbol.is_control() { '?' } else { symbol })
        .collect()
}

/// Follows a link through the others as the system would, and says whether it stays in the folder: within `top` where a
/// bundle will be moved elsewhere, without anything beside it.
///
/// A part that is not there may be made later, so that the way from there on counts too.
pub(super) fn check_link(link: &Path, links: &BTreeMap<PathBuf, PathBuf>, top: &Path) -> Result<(), Fault> {
    let leads_out = || Fault::LeadsOut(shown(link.as_os_str().as_bytes()));
    let Some(target) = links.get(link) else { return Ok(()) };
    let mut at: PathBuf = link.parent().map(Path::to_path_buf).unwrap_or_default();
    // The next part to go stands last.
    let mut way: Vec<Component<'_>> = target.components().rev().collect();
    let mut passed = 1;
    while let Some(part) = way.pop() {
        match part {
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Err(leads_out()),
            Component::ParentDir => {
                if at == top || !at.pop() {
                    return Err(leads_out());
                }
            }
            Component::Normal(name) => {
                at.push(name);
                if let Some(next) = links.get(&at) {
                    passed += 1;
                    if passed > MOST_LINKS {
                        return Err(Fault::NoArchive(format!("its link {} has no end", link.display())));
                    }
                    at.pop();
                    way.extend(next.components().rev());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        let ok = |name: &str| inside(name.as_bytes()).unwrap();
        assert_eq!(ok("./bin/ollama"), Path::new("bin/ollama"));
        assert_eq!(ok("Ollama.app/Contents/Icon\r"), Path::new("Ollama.app/Contents/Icon\r"));
        assert_eq!((ok("./"), ok("a//b/./c/")), (PathBuf::new(), PathBuf::from("a/b/c")));
        for name in ["/etc/passwd", "../x", "a/../b", "a/..", "a\0b"] {
            assert!(matches!(inside(name.as_bytes()), Err(Fault::LeadsOut(_))), "{name:?}");
        }
        assert!(matches!(inside(&[b'a'; LONGEST_BYTES + 1]), Err(Fault::NoArchive(_))));
        assert!(matches!(inside("a/".repeat(DEEPEST + 1).as_bytes()), Err(Fault::NoArchive(_))));
    }

    #[test]
    fn links_stay_inside_also_by_way_of_other_links() {
        let check = |links: &[(&str, &str)], top: &str| {
            let links: BTreeMap<_, _> = links.iter().map(|(at, to)| (PathBuf::from(at), PathBuf::from(to))).collect();
            links.keys().try_for_each(|link| check_link(link, &links, Path::new(top)))
        };
        assert_eq!(
            check(&[("lib/a.so", "a.so.1"), ("lib/a.so.1", "./a.so.1.2"), ("bin/a", "../lib/a.so")], ""),
            Ok(())
        );
        assert_eq!(check(&[("A/Current", "Versions/A"), ("A/x", "Current/../x")], "A"), Ok(()));
        for links in [
            &[("a", "/etc/passwd")][..],
            &[("a", "..")],
            &[("a/b", "../../x")],
            &[("a/b", "missing/../../../x")],
            // By its text the second stays inside; by way of the first it does not.
            &[("d/up", ".."), ("b", "d/up/../x")],
        ] {
            assert!(matches!(check(links, ""), Err(Fault::LeadsOut(_))), "{links:?}");
        }
        assert!(matches!(check(&[("Ollama.app/a", "../b")], "Ollama.app"), Err(Fault::LeadsOut(_))));
        assert!(matches!(check(&[("a", "b"), ("b", "a")], ""), Err(Fault::NoArchive(_))));
    }
}
