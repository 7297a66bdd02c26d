//! What looking costs: `sampling_cost [SAMPLES] [PID…]` takes that many samples of this machine (1,000 unless told)
//! without a pause, and prints this process's CPU time for each as one line of JSON. Without pids it looks at itself
//! and at two sleeping children. Commands that the system runs for us are not counted.

use rustix::time::{ClockId, clock_gettime};
use stablehand_engine::process::Identity;
use stablehand_platform::connections::Connections;
use stablehand_platform::sampling::{RunState, Sampler};
use stablehand_platform::{Machine, processes};
use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

/// Connections that are open while connections are looked at.
const CONNECTIONS: usize = 8;

/// Children that end with this program.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _gone_already = child.kill();
            let _reaped_already = child.wait();
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let samples: u32 = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let mut pids = arguments.map(|text| text.parse::<u32>()).collect::<Result<Vec<_>, _>>()?;
    let mut sleepers = Sleepers(Vec::new());
    if pids.is_empty() {
        for _child in 0..2 {
            sleepers.0.push(Command::new("/bin/sleep").arg("600").spawn()?);
        }
        pids.extend(sleepers.0.iter().map(Child::id));
        pids.push(std::process::id());
    }
    let lives: Vec<Identity> = pids.iter().filter_map(|pid| processes::identity(*pid)).collect();

    let machine = Machine::detect()?;
    let mut sampler = Sampler::new(machine.clone());
    let first = sampler.sample(&lives).await;
    let alive = first.processes.iter().filter(|one| one.state.known() == Some(&RunState::Running)).count();
    let began = cpu_ms();
    for _look in 0..samples {
        sampler.sample(&lives).await;
    }
    let sample_ms = (cpu_ms() - began) / f64::from(samples.max(1));

    let server = TcpListener::bind("127.0.0.1:0")?;
    let port = server.local_addr()?.port();
    let clients = (0..CONNECTIONS).map(|_| TcpStream::connect(("127.0.0.1", port))).collect::<Result<Vec<_>, _>>()?;
    let mut connections = Connections::new(machine);
    let seen = connections.look(port).known().map(Vec::len);
    let began = cpu_ms();
    for _look in 0..samples {
        connections.look(port);
    }
    let look_ms = (cpu_ms() - began) / f64::from(samples.max(1));
    drop(clients);

    let line = serde_json::json!({
        "samples": samples,
        "processes": lives.len(),
        "processes_running": alive,
        "cpu_ms_per_sample": rounded(sample_ms),
        "percent_of_a_core_at_1_hz": rounded(sample_ms / 10.0),
        "connections": seen,
        "cpu_ms_per_look_at_connections": rounded(look_ms),
    });
    println!("{line}");
    Ok(())
}

fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1_000.0 + time.tv_nsec as f64 / 1_000_000.0
}

fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
