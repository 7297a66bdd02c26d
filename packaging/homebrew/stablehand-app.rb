# The app: menu, command and daemon. scripts/lib/homebrew.py puts version, sum and place of a release in.
cask "stablehand-app" do
  version "@VERSION@"
  sha256 "@SHA256 Stablehand-@VERSION@.zip@"

  url "https://github.com/@REPOSITORY@/releases/download/v#{version}/Stablehand-#{version}.zip"
  name "Stablehand"
  desc "Menu, command and daemon that keep a local Ollama moving"
  homepage "https://github.com/@REPOSITORY@"

  depends_on macos: ">= :sonoma"

  app "Stablehand.app"
  binary "#{appdir}/Stablehand.app/Contents/MacOS/stablehand"

  # Homebrew carries this out at each upgrade as well: the agents, and with them the settings that are kept in one of
  # them, must outlive it. `stablehand uninstall` takes them away for good, and so does zap.
  uninstall quit: "dev.stablehand"

  zap launchctl: [
        "dev.stablehand.daemon",
        "dev.stablehand.ollama-env",
        "dev.stablehand.tray",
      ],
      trash:     [
        "~/Library/Application Support/dev.stablehand",
        "~/Library/Caches/dev.stablehand",
        "~/Library/LaunchAgents/dev.stablehand.daemon.plist",
        "~/Library/LaunchAgents/dev.stablehand.ollama-env.plist",
        "~/Library/LaunchAgents/dev.stablehand.tray.plist",
        "~/Library/Logs/dev.stablehand",
        "~/Library/Preferences/dev.stablehand.plist",
        "~/Library/WebKit/dev.stablehand",
      ]

  caveats <<~EOS
    To start the daemon at every login, and again after an upgrade:
      stablehand install
    Before you uninstall the cask for good, also to put adopted files back:
      stablehand uninstall
  EOS
end
