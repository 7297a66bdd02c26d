# The command and the daemon. scripts/lib/homebrew.py puts version, sums and place of a release in.
class Stablehand < Formula
  desc "Keeps a local Ollama moving, and proves its settings"
  homepage "https://github.com/@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    url "https://github.com/@REPOSITORY@/releases/download/v@VERSION@/stablehand-@VERSION@-macos-universal.tar.gz"
    sha256 "@SHA256 stablehand-@VERSION@-macos-universal.tar.gz@"
  end

  on_linux do
    on_intel do
      url "https://github.com/@REPOSITORY@/releases/download/v@VERSION@/stablehand-@VERSION@-linux-amd64.tar.gz"
      sha256 "@SHA256 stablehand-@VERSION@-linux-amd64.tar.gz@"
    end
    on_arm do
      url "https://github.com/@REPOSITORY@/releases/download/v@VERSION@/stablehand-@VERSION@-linux-arm64.tar.gz"
      sha256 "@SHA256 stablehand-@VERSION@-linux-arm64.tar.gz@"
    end
  end

  # The menu is not among it: on macOS it comes with the cask, on Linux with the .deb and the tarball.
  def install
    bin.install "bin/stablehand"
  end

  def caveats
    <<~EOS
      To start the daemon at every login, and again after an upgrade:
        stablehand install
      Before you uninstall the formula, also to put adopted files back:
        stablehand uninstall
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/stablehand --version")
  end
end
