use super::*;
use hyper::HeaderMap;
use proptest::prelude::*;
use stablehand_engine::upgrade::found::Unreachable;

/// Three releases as GitHub lists them, in the order of publication.
const LIST: &[u8] = include_bytes!("../../fixtures/releases.json");
const SUM_FILE: &[u8] = include_bytes!("../../fixtures/sha256sum.txt");

#[test]
fn releases_are_read_with_notes_and_files_the_highest_version_first() {
    let all = list();
    let versions: Vec<_> = all.releases.iter().map(|release| release.version.to_string()).collect();
    assert_eq!(versions, ["0.25.0-rc1", "0.24.0", "0.22.1"]);
    let release = all.get(Which::Newest).unwrap();
    assert_eq!((release.tag.as_str(), release.prerelease), ("v0.24.0", false));
    assert_eq!(release.published, Known::Is(Wall::from_unix_ms(1_777_629_600_000)));
    assert_eq!(
        release.notes,
        "## What's new\n\n* Faster prompts on Apple silicon & Linux\n* A fix for `<think>` tags\n\nFull list: https://github.com/ollama/ollama"
    );
    let zip = release.file("Ollama-darwin.zip").unwrap();
    assert_eq!(zip.size_bytes, 190_123_456);
    assert_eq!(zip.url, "https://github.com/ollama/ollama/releases/download/v0.24.0/Ollama-darwin.zip");
}

#[test]
fn what_is_no_release_is_left_out_with_its_reason() {
    let left_out: Vec<_> = list().left_out.into_iter().map(|left_out| (left_out.tag, left_out.why)).collect();
    assert_eq!(
        left_out,
        [
            ("nightly".to_owned(), "this is no version like 0.33.0: \"nightly\"".to_owned()),
            ("v0.26.0".to_owned(), "it is a draft".to_owned()),
            (String::new(), "missing field `tag_name`".to_owned()),
        ]
    );
}

#[test]
fn candidates_are_chosen_only_when_asked_for() {
    let all = list();
    let version = |which| all.get(which).map(|release| release.version.to_string());
    assert_eq!(version(Which::Newest).as_deref(), Some("0.24.0"));
    assert_eq!(version(Which::NewestOrCandidate).as_deref(), Some("0.25.0-rc1"));
    assert_eq!(version(Which::This(Version::new(0, 22, 1))).as_deref(), Some("0.22.1"));
    assert_eq!(version(Which::This(Version::new(9, 9, 9))), None);
}

#[test]
fn a_candidate_that_github_calls_a_release_is_a_candidate_all_the_same() {
    let all = Releases::read(br#"{"tag_name":"v0.40.0-rc0","prerelease":false,"assets":null,"body":null}"#).unwrap();
    assert!(all.releases[0].prerelease);
    assert_eq!(all.get(Which::Newest), None);
    assert_eq!(all.releases[0].published.reason(), Some("the release does not say when"));
}

#[test]
fn the_answer_for_a_tag_is_read_like_the_list() {
    let all = Releases::read(br#"{"tag_name":"v0.24.0"}"#).unwrap();
    assert_eq!(all.releases[0].version, Version::new(0, 24, 0));
}

#[test]
fn an_answer_that_is_something_else_is_told_in_its_own_words() {
    for (body, words) in [
        (r#"{"message":"API rate limit exceeded"}"#, "API rate limit exceeded"),
        ("<html>Log in to the hotel</html>", "<html>Log in to the hotel</html>"),
        ("null", "null"),
        ("", ""),
        ("[{\"tag_name\":", "[{\"tag_name\":"),
    ] {
        assert_eq!(Releases::read(body.as_bytes()), Err(NoReleases::Other(words.to_owned())));
    }
    assert_eq!(Releases::read(&vec![b' '; ANSWER_LONGEST_BYTES + 1]), Err(NoReleases::TooLong));
}

#[test]
fn a_file_that_is_still_coming_in_or_has_no_address_is_no_file() {
    let body = br#"{"tag_name":"v0.24.0","assets":[
        {"name":"a","size":1,"browser_download_url":"https://x.example/a","state":"starter"},
        {"name":"b","size":0,"browser_download_url":"https://x.example/b"},
        {"name":"c","size":1,"browser_download_url":"file:///etc/passwd"},
        {"name":"d","size":1,"browser_download_url":"https://x.example/d\r\nHost: y"},
        {"name":"e","size":1,"browser_download_url":"https:///e"},
        {"name":"","size":1,"browser_download_url":"https://x.example/f"},
        {"name":"g","size":1},
        {"name":"h","size":1,"browser_download_url":"http://127.0.0.1:8000/h","state":"uploaded"}]}"#;
    let names: Vec<_> = Releases::read(body).unwrap().releases[0].files.iter().map(|file| file.name.clone()).collect();
    assert_eq!(names, ["h"], "a mirror on this computer may be plain HTTP");
}

#[test]
fn notes_of_a_megabyte_with_html_are_cut_to_text() {
    let body = "<p onclick=\"alert(1)\">A <b>fast</b> release</p><script>alert(2)</script>\n".repeat(15_000);
    assert!(body.len() > 1_000_000);
    let notes = plain(&body);
    assert!(notes.len() <= NOTES_LONGEST_BYTES, "{}", notes.len());
    assert!(notes.starts_with("A fast release\n\nA fast release\n") && notes.ends_with('…'), "{notes:.60}");
    assert!(!notes.contains("alert") && !notes.contains('<'));
}

#[test]
fn html_goes_and_what_only_looks_like_it_stays() {
    for (written, read) in [
        ("a < b && c > d", "a < b && c > d"),
        ("x <- y", "x <- y"),
        ("<https://ollama.com>", "https://ollama.com"),
        ("one<br/>two<br>three", "one\ntwo\nthree"),
        ("before<!-- hidden -->after", "beforeafter"),
        ("before<!-- never closed", "before"),
        ("<SCRIPT>x</sCript >y", "y"),
        ("<style>never closed", ""),
        ("&lt;b&gt; &amp;amp; &#65;&#x42; &nosuch; &#xd800;", "<b> &amp; AB &nosuch; &#xd800;"),
        ("a\u{1b}[31mred\u{7}\u{202e}b\u{200b}", "a[31mredb"),
        ("&#27;[2Jx", "[2Jx"),
        ("a\r\n\r\n\r\n\r\nb  \r\n", "a\n\nb"),
        ("<img src=x", "<img src=x"),
    ] {
        assert_eq!(plain(written), read, "{written:?}");
    }
}

#[test]
fn hashes_are_found_by_name_in_either_form_of_line() {
    let sums = Sums::read(SUM_FILE);
    assert_eq!(sums.of("Ollama-darwin.zip"), Ok("1b".repeat(32).as_str()));
    assert_eq!(sums.of("ollama-linux-amd64.tar.zst"), Ok("2c".repeat(32).as_str()));
    assert_eq!(sums.of("no-such-file"), Err(NoSum::Missing));
}

#[test]
fn lines_that_are_no_hashes_count_for_nothing_and_two_hashes_are_none() {
    let (one, two) = ("ab".repeat(32), "cd".repeat(32));
    let text = format!(
        "{one}  ./twice\n{two}  ./twice\n{one}  ./same\n{one} *same\n{}  ./upper\r\n{one}\n{one} alone\nxyz  ./short\n\u{fffd}\n",
        one.to_uppercase()
    );
    let sums = Sums::read(text.as_bytes());
    assert_eq!(sums.of("twice"), Err(NoSum::Twice));
    assert_eq!(sums.of("same"), Ok(one.as_str()));
    assert_eq!(sums.of("upper"), Ok(one.as_str()));
    assert_eq!([sums.of("alone"), sums.of("short"), sums.of("")], [const { Err(NoSum::Missing) }; 3]);
}

#[test]
fn each_install_is_made_from_its_own_files() {
    let names = |install: &Install, architecture, extras: &[Extra], release: &str| {
        let all = list();
        let release = all.get(Which::This(release.parse().unwrap())).unwrap();
        let archives = archives(release, &Sums::read(SUM_FILE), install, architecture, extras);
        archives.map(|archives| archives.into_iter().map(|archive| archive.name).collect::<Vec<_>>())
    };
    let missing = |name: &str| Err(NoFile::Missing(name.to_owned()));
    let (amd, arm) = (Architecture::Amd64, Architecture::Arm64);
    assert_eq!(names(&app(), arm, &[], "0.24.0").unwrap(), ["Ollama-darwin.zip"]);
    assert_eq!(names(&tarball(), amd, &[], "0.24.0").unwrap(), ["ollama-linux-amd64.tar.zst"]);
    assert_eq!(
        names(&tarball(), amd, &[Extra::Rocm], "0.24.0").unwrap(),
        ["ollama-linux-amd64.tar.zst", "ollama-linux-amd64-rocm.tar.zst"]
    );
    assert_eq!(names(&tarball(), amd, &[], "0.22.1").unwrap(), ["ollama-linux-amd64.tgz"], "an older release");
    assert_eq!(names(&tarball(), arm, &[Extra::Jetpack6], "0.24.0"), missing("ollama-linux-arm64.tar.zst"));
    let cask = Install::Cask { bundle: "/a".into(), token: "ollama-app".to_owned() };
    assert_eq!(names(&cask, arm, &[], "0.24.0").unwrap(), [""; 0], "Homebrew fetches its own");
    let unhashed = NoFile::NoSum("Ollama-darwin.zip".to_owned(), NoSum::Missing);
    let all = list();
    assert_eq!(archives(&all.releases[1], &Sums::default(), &app(), arm, &[]), Err(unhashed));
    assert_eq!(Architecture::named("aarch64"), Some(arm));
    assert_eq!(Architecture::named("riscv64"), None);
}

#[test]
fn the_engine_is_told_what_is_there_and_what_is_missing() {
    let all = list();
    let sums = Sums::read(SUM_FILE);
    let of = |version: &str, sums: &Sums, install: &Install, installed| {
        let release = all.get(Which::This(version.parse().unwrap())).unwrap();
        wanted(release, sums, install, Architecture::Arm64, &[], installed)
    };
    let Wanted::Release { version, against_installed, archives } = of("0.24.0", &sums, &app(), "0.22.1") else {
        panic!()
    };
    assert_eq!((version.as_str(), against_installed), ("0.24.0", Known::Is(Ordering::Greater)));
    assert_eq!(archives[0].sha256, "1b".repeat(32));
    let without_asset =
        Wanted::WithoutAsset { version: "0.25.0-rc1".to_owned(), asset: "Ollama-darwin.zip".to_owned() };
    assert_eq!(of("0.25.0-rc1", &sums, &app(), "0.22.1"), without_asset);
    let without_hash = Wanted::WithoutHash { version: "0.24.0".to_owned(), asset: "Ollama-darwin.zip".to_owned() };
    assert_eq!(of("0.24.0", &Sums::default(), &app(), "0.22.1"), without_hash);
    for installed in ["0.0.0", "from source"] {
        let Wanted::Release { against_installed, .. } = of("0.24.0", &sums, &app(), installed) else { panic!() };
        assert!(against_installed.known().is_none(), "{installed}");
    }
}

#[test]
fn paths_name_the_list_and_one_tag() {
    assert_eq!(path_of_list(0), "/repos/ollama/ollama/releases?per_page=1");
    assert_eq!(path_of_list(200), "/repos/ollama/ollama/releases?per_page=100");
    assert_eq!(path_of("0.25.0-rc1".parse().unwrap()), "/repos/ollama/ollama/releases/tags/v0.25.0-rc1");
}

#[test]
fn status_and_headers_say_what_an_answer_is() {
    let now = Wall::from_unix_ms(1_000_000_000);
    let at = |status, pairs: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        Answer::read(status, &headers, now)
    };
    let limited = |wait_seconds| Answer::Unreachable(Unreachable::RateLimited { wait_seconds });
    let other = |status| Answer::Unreachable(Unreachable::Other(format!("the server answered {status}")));
    let left = |remaining, reset| [("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
    let limit = Some(Limit { remaining: 59, reset_seconds: 60 });
    assert_eq!(
        at(200, &[("etag", "W/\"4f\""), left("59", "1000060")[0], left("59", "1000060")[1]]),
        Answer::Body { etag: ETag::new("W/\"4f\""), limit }
    );
    assert_eq!(at(304, &left("59", "1000060")), Answer::NotModified { limit });
    assert_eq!(at(200, &[("etag", "no quotes")]), Answer::Body { etag: None, limit: None });
    assert_eq!(at(404, &[]), Answer::Missing);
    assert_eq!(at(407, &[]), Answer::Unreachable(Unreachable::Proxy));
    assert_eq!(at(403, &left("0", "1000090")), limited(Some(90)));
    assert_eq!(at(403, &left("0", "999999")), limited(Some(0)), "a reset in the past");
    assert_eq!(at(429, &[("retry-after", "30")]), limited(Some(30)));
    assert_eq!(at(403, &[("retry-after", "99999999999")]), limited(Some(86_400)), "no wait for ever");
    assert_eq!(at(429, &[("retry-after", "soon")]), limited(None));
    assert_eq!(at(403, &left("12", "1000090")), other(403), "a refusal that is no limit");
    assert_eq!(at(403, &left("0", "99999999999999999999")), other(403));
    assert_eq!(at(302, &[]), other(302));
    assert_eq!(at(502, &[]), other(502));
}

proptest! {
    #[test]
    fn no_body_and_no_notes_break_the_reading(body in prop::collection::vec(any::<u8>(), 0..400), notes in "[<>&;/!#a-c\\-\u{0}é ]{0,300}") {
        let _ = Releases::read(&body);
        let _ = Sums::read(&body);
        let text = plain(&notes);
        prop_assert!(text.len() <= NOTES_LONGEST_BYTES);
        prop_assert!(!text.contains('\0'));
    }
}

fn list() -> Releases {
    Releases::read(LIST).unwrap()
}

fn app() -> Install {
    Install::App { bundle: "/Applications/Ollama.app".into() }
}

fn tarball() -> Install {
    Install::Tarball {
        program: "/usr/local/bin/ollama".into(),
        linked: None,
        libraries: "/usr/local/lib/ollama".into(),
    }
}
