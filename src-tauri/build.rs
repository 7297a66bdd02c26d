//! Tells Tauri's compile-time parts where things are.
fn main() {
    tauri_build::build();
}
