// Tests the program on a terminal of 80 columns: what the screen shows at the end, and what a key press does.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/e2e/support_program.h"

namespace spillway::test::terminal_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kColumns = 80;

// Emulates as much of a terminal as the program uses: carriage return, line feed, moving up, erasing to the end of the line or screen,
// colours, and wrapping. Lines that scroll away are kept.
class Screen {
 public:
  void take(char c) {
    if (escape_ > 0) return take_escape(c);
    if (c == '\033') {
      escape_ = 1;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      next_row();
    } else if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) {  // the byte continues a UTF-8 character
      if (column_ > 0) rows_[row_][column_ - 1] += c;
    } else {
      if (column_ == kColumns) next_row(), ++wraps_;
      if (rows_[row_].size() <= column_) rows_[row_].resize(column_ + 1, " ");
      rows_[row_][column_++] = c;
    }
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const auto& row : rows_) {
      std::string& line = all.emplace_back();
      for (const std::string& cell : row) line += cell;
    }
    return all;
  }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines()) all += line + "\n";
    return all;
  }
  int wraps() const { return wraps_; }

 private:
  void next_row() {
    if (++row_ == rows_.size()) rows_.emplace_back();
    column_ = 0;
  }
  void take_escape(char c) {
    if (escape_++ == 1 && c == '[') return;
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit) number_ = 10 * number_ + static_cast<size_t>(c - '0');
    if (digit || c == ';') return;
    if (c == 'K' || c == 'J') rows_[row_].resize(std::min(rows_[row_].size(), column_));
    if (c == 'J') rows_.resize(row_ + 1);
    if (c == 'A') row_ -= std::min(row_, number_);
    escape_ = 0, number_ = 0;
  }

  // the rows of the screen, with one string per character
  std::vector<std::vector<std::string>> rows_ = std::vector<std::vector<std::string>>(1);
  size_t row_ = 0, column_ = 0, number_ = 0;
  int escape_ = 0, wraps_ = 0;
};

class OnTerminal : public testing::Test {
 protected:
  OnTerminal() { at.write_text("text.txt", 60000); }
  ~OnTerminal() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL);  // ends the program, which a failed test leaves running
    finish();
  }

  void start(Args args, const char* term = "xterm") {
    winsize size{24, kColumns, 0, 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    ASSERT_GE(pid_, 0);
    screen = {};
    if (pid_ > 0) return;
    ::setenv("TERM", term, 1);
    if (::chdir(at.path().c_str()) != 0) ::_exit(127);
    std::vector<char*> argv{const_cast<char*>(SPILLWAY_PROGRAM)};
    for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  // Returns true if a step is in progress or done: the program reports a long step while it runs, and metrics appear after the first step.
  bool in_a_step() const { return shows("step 1 of 100000") || !at.metrics("run").empty(); }
  // Reads the program's output until `when` holds or the program ends. Returns false after `seconds`.
  bool read_until(const std::function<bool()>& when, double seconds = 60) {
    const auto until = Clock::now() + std::chrono::duration<double>(seconds);
    while (!when()) {
      pollfd one{terminal_, POLLIN, 0};
      if (Clock::now() > until) return false;
      if (::poll(&one, 1, 20) <= 0) continue;
      char bytes[4096];
      const ssize_t got = ::read(terminal_, bytes, sizeof bytes);
      if (got <= 0) return when();  // EIO means that the program closed its end of the terminal
      for (ssize_t k = 0; k < got; ++k) screen.take(bytes[k]);
      if (shows_now("validating after step ")) ++signs_;
    }
    return true;
  }
  void press(char key) const { ASSERT_EQ(::write(terminal_, &key, 1), 1); }
  // Returns the program's exit status. The program's output is read to the end, however long that takes, since nobody reads it later.
  int finish() {
    if (pid_ <= 0) return -1;
    read_until([] { return false; }, 600);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::close(terminal_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(const Args& args, const char* term = "xterm") {
    start(args, term);
    return finish();
  }
  bool shows(const std::string& what) const { return mentions(screen.text(), what); }

  // Returns true if the line that is being refreshed shows `what`.
  bool shows_now(const std::string& what) const { return mentions(screen.lines().back(), what); }

  Workplace at;
  Screen screen;
  int signs_ = 0;

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
};
using OnTerminalMore = OnTerminal;

using OnTerminalRelease = OnTerminal;

constexpr char kCtrlC = 3;

TEST_F(OnTerminal, ValidationAndTimesStandWhole) {
  ASSERT_EQ(run(small_run("run", 30, "64MiB", {"--validation-fraction", "0.02", "--validate-every", "10"})), 0) << screen.text();
  int validations = 0, steps = 0;
  for (const std::string& line : screen.lines()) {
    EXPECT_FALSE(line.starts_with("step ") && line.size() >= kColumns) << line;
    if (line.starts_with("step ")) {
      ++steps;
      EXPECT_TRUE(mentions(line, "  loss ") && mentions(line, "  left ")) << line;
    }
    if (line.starts_with("  validation loss ")) {
      ++validations;
      EXPECT_EQ(line.size(), std::string("  validation loss 5.1234").size()) << line;
    }
  }
  EXPECT_EQ(screen.wraps(), 0) << "lines end between words\n" << screen.text();
  EXPECT_TRUE(shows("\n      spillway generate --model run --prompt The\n") || shows("; next: spillway generate --model run"))
      << screen.text();
  EXPECT_EQ(validations, 3) << screen.text();
  EXPECT_EQ(steps, 3) << "one line, refreshed, that stands where something is said below it\n" << screen.text();
  EXPECT_TRUE(shows("done: step 30, loss "));
}

// Shows that top redraws the whole screen until a key is pressed, and that the run continues.
TEST_F(OnTerminal, TopShowsARunAndEndsAtAKey) {
  std::atomic<bool> seen = false;
  std::jthread running([&] {
    at.spillway_until(
        small_run("run", 100'000, "64MiB", {}), [&] { return seen.load(); }, SIGINT);
  });
  for (int k = 0; k < 600 && at.metrics("run").empty(); ++k) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  start({"top", "run", "--every", "1s"});
  const auto heads = [&] { return std::ranges::count_if(screen.lines(), [](const std::string& l) { return mentions(l, " of 100000"); }); };
  EXPECT_TRUE(read_until([&] { return shows("running  step "); })) << screen.text();
  const std::string first = screen.lines().front();
  EXPECT_TRUE(read_until([&] { return screen.lines().front() != first && mentions(screen.lines().front(), " of 100000"); })) << first;
  press('x');
  press('q');
  EXPECT_EQ(finish(), 0);
  seen = true;
  EXPECT_EQ(heads(), 1) << screen.text();
  EXPECT_EQ(screen.wraps(), 0) << screen.text();
  EXPECT_LE(screen.lines().size(), 24u) << screen.text();
  EXPECT_TRUE(shows("loss") && !shows("xq") && !shows("\nx")) << screen.text();
}

TEST_F(OnTerminalMore, ADumbOneGetsPlainLines) {
  ASSERT_EQ(run(small_run("run", 5, "64MiB", {}), "dumb"), 0);
  int steps = 0;
  for (const std::string& line : screen.lines()) steps += line.starts_with("step ");
  EXPECT_EQ(steps, 5) << screen.text();
}

TEST_F(OnTerminal, CtrlCIsAnsweredAtOnceAndTheSameCommandGoesOn) {
  const Args endless = small_run("run", 100'000, "64MiB", {});
  start(endless);
  ASSERT_TRUE(read_until([&] { return at.metrics("run").size() >= 5; })) << screen.text();
  press(kCtrlC);
  // The answer to Ctrl-C may arrive from the terminal in pieces.
  EXPECT_TRUE(read_until([&] { return shows("press Ctrl-C again to leave without saving"); }, 5)) << screen.text();
  EXPECT_TRUE(shows("stopping after this step (about ")) << screen.text();
  EXPECT_EQ(finish(), 75) << screen.text();
  EXPECT_TRUE(shows("stopped by SIGINT after step ")) << screen.text();
  start(endless);
  EXPECT_TRUE(read_until([&] { return shows("continues at step "); })) << screen.text();
  press(kCtrlC);
  EXPECT_EQ(finish(), 75);
  const std::string log = at.read("run/log.txt");
  for (const char* piece : {"train --model llama-tiny", "spillway 0.1.0, build ", " of memory granted (",
                            "memory plan:", "continues at step ", "saved ", "stopped by SIGINT after step "})
    EXPECT_TRUE(mentions(log, piece)) << piece << " in\n" << log;
}

TEST_F(OnTerminalMore, ASecondCtrlCLeavesWithALine) {
  Args slow = small_run("run", 100'000, "64MiB", {"--gradient-accumulation-steps", "150"});
  *(std::find(slow.begin(), slow.end(), "--sequence-length") + 1) = "64";
  start(slow);
  ASSERT_TRUE(read_until([&] { return shows("new run of 100000 steps"); }, 300)) << screen.text();
  ASSERT_TRUE(read_until([&] { return in_a_step(); }, 300)) << screen.text();
  press(kCtrlC);
  EXPECT_TRUE(read_until([&] { return shows("stopping after this step"); }, 5)) << screen.text();
  press(kCtrlC);
  EXPECT_EQ(finish(), 130);
  EXPECT_TRUE(shows("without saving; nothing was saved yet")) << screen.text();
}

TEST_F(OnTerminalMore, ASecondCtrlCOfRanksLeavesWithALine) {
  Args slow = small_run("run", 100'000, "64MiB", {"--gradient-accumulation-steps", "150", "--ranks", "2"});
  *(std::find(slow.begin(), slow.end(), "--sequence-length") + 1) = "64";
  start(slow);
  ASSERT_TRUE(read_until([&] { return in_a_step(); }, 300)) << screen.text();
  press(kCtrlC);
  EXPECT_TRUE(read_until([&] { return shows("stopping after this step"); }, 5)) << screen.text();
  press(kCtrlC);
  EXPECT_EQ(finish(), 130);
  EXPECT_TRUE(shows("stopped without saving")) << screen.text();
  EXPECT_TRUE(mentions(at.read("run/log.txt"), "without saving"));
}

// Presses Ctrl-C while blocks are timed or weights are initialised. The program must answer then too.
TEST_F(OnTerminalRelease, CtrlCBeforeTheFirstStepIsAnsweredToo) {
  const Args slow = {"train",
                     "--model",
                     "gpt2-124m",
                     "--data",
                     "text.txt",
                     "--sequence-length",
                     "64",
                     "--steps",
                     "9",
                     "--out",
                     "run",
                     "--threads",
                     "1",
                     "--device-memory",
                     "3GiB",
                     "--host-memory",
                     "1GiB",
                     "--no-final-checkpoint",
                     "--checkpoint-every",
                     "10h"};
  start(slow);
  ASSERT_TRUE(read_until([&] { return std::filesystem::exists(at / "run") || shows("new run"); }, 60)) << screen.text();
  press(kCtrlC);
  EXPECT_TRUE(read_until([&] { return shows("stopping before the first step"); }, 2)) << screen.text();
  EXPECT_EQ(finish(), 75);
  EXPECT_TRUE(shows("stopped by SIGINT before the first step: nothing was trained")) << screen.text();
  EXPECT_FALSE(std::filesystem::exists(at / "run/metrics.jsonl"));
}

// Shows that work that takes longer than five seconds says what it is doing.
using SoakOnTerminal = OnTerminal;
TEST_F(SoakOnTerminal, ValidationGivesASignOfLife) {
  at.write_text("text.txt", 2'000'000);
  ASSERT_EQ(run(small_run("run", 3, "64MiB", {"--validation-fraction", "0.9"})), 0) << screen.text();
  EXPECT_GT(signs_, 0) << screen.text();
}

TEST_F(OnTerminalMore, PlansFit) {
  ASSERT_EQ(run({"plan", "--model", "gpt2-124m", "--data", "text.txt", "--device-memory", "4GiB"}), 0);
  EXPECT_EQ(screen.wraps(), 0) << screen.text();
  ASSERT_EQ(run({"plan", "--model", "gpt2-124m", "--data", "text.txt", "--device-memory", "100MiB", "--host-memory", "200MiB"}), 3);
  EXPECT_EQ(screen.wraps(), 0) << screen.text();
}

TEST_F(OnTerminalMore, RanksSayWhatTheUserPressed) {
  start(small_run("run", 100'000, "64MiB", {"--ranks", "2"}));
  ASSERT_TRUE(read_until([&] { return at.metrics("run").size() >= 5; })) << screen.text();
  press(kCtrlC);
  EXPECT_EQ(finish(), 75) << screen.text();
  EXPECT_TRUE(shows("stopped by SIGINT of rank 0 ")) << screen.text();
  EXPECT_TRUE(shows("stopping after this step (about "));
}

TEST_F(OnTerminalMore, LongHelpGoesThroughAPager) {
  at.write("pager.sh", "sed 's/^/paged: /'\n");
  ::setenv("PAGER", ("sh " + (at / "pager.sh").string()).c_str(), 1);
  EXPECT_EQ(run({"train", "--help"}), 0);
  EXPECT_TRUE(shows("paged: ")) << screen.text();
  ::setenv("PAGER", "no-such-pager", 1);
  EXPECT_EQ(run({"train", "--help"}), 0);
  EXPECT_TRUE(shows("--data PATH")) << screen.text();
  ::unsetenv("PAGER");
}

TEST_F(OnTerminalMore, HelpFits) {
  ::setenv("PAGER", "cat", 1);
  for (const Args& args :
       {Args{"--help"}, Args{"train", "--help"}, Args{"train", "--help=all"}, Args{"plan", "--help"}, Args{"help", "bench"}}) {
    EXPECT_EQ(run(args), 0);
    EXPECT_EQ(screen.wraps(), 0) << args.front();
  }
  EXPECT_EQ(run({"train", "--help"}), 0);
  EXPECT_TRUE(shows("--data PATH") && shows("spillway train --help=all")) << screen.text();
  EXPECT_FALSE(shows("--min-lr-ratio"));
}

}  // namespace
}  // namespace spillway::test::terminal_test
