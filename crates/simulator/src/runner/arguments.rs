//! The argument vector of a runner.

/// Which program is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `llama-server`.
    LlamaServer,
    /// `ollama runner`, up to 0.24.
    Old,
    /// `ollama runner --mlx-engine`.
    Mlx,
}

/// What is understood of an argument vector; other flags are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The program.
    pub kind: Kind,
    /// Path of the weights, or the model's name for MLX.
    pub model: String,
    /// Port to listen on.
    pub port: u16,
    /// Context of all slots together.
    pub context: u64,
    /// Slots.
    pub slots: u64,
    /// Largest number of prompt tokens in one step.
    pub batch: u64,
}

/// Types that the key/value cache can have.
const CACHE_TYPES: [&str; 9] = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"];

impl Arguments {
    /// Reads the arguments after the program's name. The error is what the
    /// program prints before it exits with 1.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut kind = Kind::LlamaServer;
        let mut words = arguments.iter().map(String::as_str).peekable();
        if words.peek() == Some(&"runner") {
            kind = Kind::Old;
            words.next();
        }
        let mut parsed = Self { kind, model: String::new(), port: 8080, context: 4096, slots: 1, batch: 2048 };
        while let Some(word) = words.next() {
            match word {
                "--mlx-engine" => parsed.kind = Kind::Mlx,
                "--model" | "-m" => parsed.model = words.next().unwrap_or_default().to_owned(),
                "--port" => parsed.port = number(word, words.next())?,
                "-c" | "--ctx-size" => parsed.context = number(word, words.next())?,
                "-b" | "--batch-size" => parsed.batch = number(word, words.next())?,
                "-np" | "--parallel" => parsed.slots = number(word, words.next())?,
                "--cache-type-k" | "--cache-type-v" => {
                    let value = words.next().unwrap_or_default();
                    if !CACHE_TYPES.contains(&value) {
                        return Err(format!(
                            "error while handling argument \"{word}\": Unsupported cache type: {value}\n\nusage:\n{word} TYPE   KV cache data type\n                        allowed values: {}",
                            CACHE_TYPES.join(", ")
                        ));
                    }
                }
                _ => {}
            }
        }
        parsed.slots = parsed.slots.max(1);
        parsed.batch = parsed.batch.max(1);
        Ok(parsed)
    }
}

fn number<N: std::str::FromStr>(flag: &str, value: Option<&str>) -> Result<N, String> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("error while handling argument \"{flag}\": stoi"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn ollamas_own_argument_vector_is_read() {
        let arguments = parse(
            "--model /b --port 53411 --host 127.0.0.1 --no-webui --offline -c 16384 -np 4 --log-verbosity 4 --flash-attn auto -b 1024",
        )
        .unwrap();
        assert_eq!(
            arguments,
            Arguments {
                kind: Kind::LlamaServer,
                model: "/b".into(),
                port: 53411,
                context: 16384,
                slots: 4,
                batch: 1024
            }
        );
    }

    #[test]
    fn older_runners_are_told_apart() {
        assert_eq!(parse("runner --ollama-engine --model /b --port 1").unwrap().kind, Kind::Old);
        assert_eq!(parse("runner --mlx-engine --model m --port 1").unwrap().kind, Kind::Mlx);
    }

    #[test]
    fn a_wrong_cache_type_is_refused_with_the_list() {
        let message = parse("--cache-type-k q9").unwrap_err();
        assert!(message.contains("Unsupported cache type: q9"));
        assert!(message.contains("iq4_nl"));
    }
}
