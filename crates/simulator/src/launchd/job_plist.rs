//! A job's property list, read and checked as launchd does.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plist::{Dictionary, Value};

/// When a job is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// Never.
    No,
    /// Always.
    Always,
    /// Only after an exit that was (`true`) or was not (`false`) a success.
    AfterSuccess(bool),
}

/// A valid job description.
#[derive(Clone, Debug)]
pub struct JobPlist {
    /// The label.
    pub label: String,
    /// The file it came from.
    pub path: PathBuf,
    /// Program file.
    pub program: String,
    /// Whether `Program` was left out.
    pub program_is_inferred: bool,
    /// Argument vector.
    pub arguments: Vec<String>,
    /// The job's own variables.
    pub environment: BTreeMap<String, String>,
    /// Started as soon as it is loaded.
    pub run_at_load: bool,
    /// When it is started again.
    pub keep_alive: KeepAlive,
    /// Least time between two starts, in seconds.
    pub throttle_s: u64,
    /// Time between SIGTERM and SIGKILL, in seconds.
    pub exit_timeout_s: u64,
    /// Started every so many seconds.
    pub interval_s: Option<u64>,
    /// Standard output.
    pub stdout: Option<PathBuf>,
    /// Standard error.
    pub stderr: Option<PathBuf>,
    /// Working directory.
    pub directory: Option<PathBuf>,
    /// `ProcessType`.
    pub process_type: String,
}

/// Why a property list is refused. launchctl shows all of them as error 5.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file is absent or cannot be read.
    Unreadable,
    /// Not a property list, or without a dictionary at its root.
    Malformed,
    /// Group or others may write it, or another user owns it.
    Permissions,
    /// No label, or not the file's name.
    Label,
    /// No program.
    Program,
    /// A variable is no string.
    Environment,
}

/// Reads and checks the job in `path`.
pub fn read(path: &Path, uid: u32) -> Result<JobPlist, Refusal> {
    let metadata = std::fs::metadata(path).map_err(|_| Refusal::Unreadable)?;
    if metadata.permissions().mode() & 0o022 != 0 || metadata.uid() != uid {
        return Err(Refusal::Permissions);
    }
    let value = Value::from_file(path).map_err(|_| Refusal::Malformed)?;
    let job = parse(value.as_dictionary().ok_or(Refusal::Malformed)?, path)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    if stem != Some(job.label.as_str()) {
        return Err(Refusal::Label);
    }
    Ok(job)
}

fn parse(dictionary: &Dictionary, path: &Path) -> Result<JobPlist, Refusal> {
    let text = |key: &str| dictionary.get(key).and_then(Value::as_string).map(str::to_owned);
    let flag = |key: &str| dictionary.get(key).and_then(Value::as_boolean).unwrap_or(false);
    let number = |key: &str| dictionary.get(key).and_then(Value::as_unsigned_integer);
    let label = text("Label").filter(|label| !label.is_empty()).ok_or(Refusal::Label)?;
    let mut arguments: Vec<String> = dictionary
        .get("ProgramArguments")
        .and_then(Value::as_array)
        .map(|values| values.iter().filter_map(|value| value.as_string().map(str::to_owned)).collect())
        .unwrap_or_default();
    let named = text("Program").or_else(|| text("BundleProgram"));
    let program_is_inferred = named.is_none();
    let program = named.or_else(|| arguments.first().cloned()).ok_or(Refusal::Program)?;
    if arguments.is_empty() {
        arguments.push(program.clone());
    }
    let mut environment = BTreeMap::new();
    if let Some(variables) = dictionary.get("EnvironmentVariables") {
        for (key, value) in variables.as_dictionary().ok_or(Refusal::Environment)? {
            let value = value.as_string().ok_or(Refusal::Environment)?;
            environment.insert(key.clone(), value.to_owned());
        }
    }
    let keep_alive = match dictionary.get("KeepAlive") {
        Some(Value::Boolean(true)) => KeepAlive::Always,
        Some(Value::Dictionary(rules)) => match rules.get("SuccessfulExit").and_then(Value::as_boolean) {
            Some(wanted) => KeepAlive::AfterSuccess(wanted),
            None => match rules.get("Crashed").and_then(Value::as_boolean) {
                Some(crashed) => KeepAlive::AfterSuccess(!crashed),
                None => KeepAlive::Always,
            },
        },
        Some(_) | None => KeepAlive::No,
    };
    Ok(JobPlist {
        label,
        path: path.to_owned(),
        program,
        program_is_inferred,
        arguments,
        environment,
        run_at_load: flag("RunAtLoad") || keep_alive != KeepAlive::No,
        keep_alive,
        throttle_s: number("ThrottleInterval").unwrap_or(10),
        exit_timeout_s: number("ExitTimeOut").unwrap_or(5),
        interval_s: number("StartInterval"),
        stdout: text("StandardOutPath").map(PathBuf::from),
        stderr: text("StandardErrorPath").map(PathBuf::from),
        directory: text("WorkingDirectory").map(PathBuf::from),
        process_type: text("ProcessType").unwrap_or_else(|| "Standard".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, body: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, format!("<?xml version=\"1.0\"?><plist version=\"1.0\"><dict>{body}</dict></plist>"))
            .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn uid() -> u32 {
        rustix::process::getuid().as_raw()
    }

    const GOOD: &str = "<key>Label</key><string>a.b</string><key>ProgramArguments</key><array><string>/bin/x</string><string>y</string></array>";

    #[test]
    fn a_good_job_is_read() {
        let (_folder, path) = write("a.b.plist", &format!("{GOOD}<key>KeepAlive</key><true/>"), 0o644);
        let job = read(&path, uid()).unwrap();
        assert_eq!(job.program, "/bin/x");
        assert_eq!(job.keep_alive, KeepAlive::Always);
        assert!(job.run_at_load);
        assert_eq!(job.throttle_s, 10);
    }

    #[test]
    fn what_launchd_refuses_is_refused() {
        let (_a, other_name) = write("c.plist", GOOD, 0o644);
        assert_eq!(read(&other_name, uid()).unwrap_err(), Refusal::Label);
        let (_b, writable) = write("a.b.plist", GOOD, 0o664);
        assert_eq!(read(&writable, uid()).unwrap_err(), Refusal::Permissions);
        let number = format!("{GOOD}<key>EnvironmentVariables</key><dict><key>A</key><integer>4</integer></dict>");
        let (_c, numeric) = write("a.b.plist", &number, 0o644);
        assert_eq!(read(&numeric, uid()).unwrap_err(), Refusal::Environment);
        assert_eq!(read(Path::new("/nonexistent/a.plist"), uid()).unwrap_err(), Refusal::Unreadable);
    }
}
