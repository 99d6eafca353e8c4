#include "app/console/console.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <sstream>
#include <thread>

#include "app/console/signals.h"
#include "trainer/node/stop.h"
#include "trainer/node/working.h"

namespace spillway::app::console_test {
namespace {

TEST(Console, ResultsAndLogGoTheirWays) {
  std::ostringstream out, err;
  Console console(out, err);
  console.result("a result");
  console.result("with its own end\n");
  console.stream("str");
  console.stream("eam");
  console.log("a line");
  console.warn("careful");
  EXPECT_EQ(out.str(), "a result\nwith its own end\nstream");
  EXPECT_EQ(err.str(), "a line\nwarning: careful\n");
}

// A command at the end of a line that is too long for the terminal has a line of its own, so that it is copied as one line.
TEST(Console, CommandsAreNotBroken) {
  std::ostringstream out, err;
  const std::string command = "spillway generate --model " + std::string(70, 'm') + " --prompt The";
  Console(out, err, false, false, true).result("  result: here; next: " + command);
  EXPECT_EQ(out.str(), "  result: here; next:\n      " + command + "\n");
}

TEST(Console, ColourCodesTakeNoColumn) {
  std::ostringstream out, err;
  Console console(out, err, true, true, true);
  const std::string rest(74, 'x');  // with "green" and a space before it, this fills the 80 columns
  console.result(console.painted("green", Colour::green) + " " + rest);
  EXPECT_EQ(out.str(), "\033[32mgreen\033[0m " + rest + "\n");
}

// File names, names read from files and text that a model wrote may hold control characters. All output escapes them, so that neither a
// terminal nor a log interprets them.
TEST(Console, ControlCharactersAreWrittenOut) {
  const std::string hostile = "\x1b]0;title\x07 \x9b \u009b2J\rforged", shown = "\\x1b]0;title\\x07 \\x9b \\u009b2J\\x0dforged";
  std::ostringstream out, err;
  std::string recorded;
  {
    Console console(out, err, false, false, true);
    console.record([&](std::string_view line) { recorded += std::string(line) + "\n"; });
    console.result(hostile);
    console.stream(hostile + "\n");
    console.log(hostile);
    console.warn(hostile);
    console.progress(hostile);
    console.record({});
  }
  EXPECT_EQ(out.str(), shown + "\n" + shown + "\n");
  EXPECT_EQ(err.str(), shown + "\nwarning: " + shown + "\n" + shown + "\n");
  EXPECT_EQ(recorded, shown + "\n" + shown + "\nwarning: " + shown + "\n");

  std::ostringstream piped, terminal;
  Console(piped, err).stream(hostile);
  EXPECT_EQ(piped.str(), hostile) << "a program may read it";
  Console colours(terminal, err, true, true, true);
  colours.result(colours.painted("word", Colour::green) + "\x1b[2J");
  EXPECT_EQ(terminal.str(), "\033[32mword\033[0m\\x1b[2J\n");
}

TEST(Console, PipedProgressIsPlainLines) {
  std::ostringstream out, err;
  Console console(out, err);
  console.progress("step 1");
  console.progress("step 2");
  console.end_progress();
  EXPECT_EQ(err.str(), "step 1\nstep 2\n");
}

TEST(Console, OnATerminalProgressIsOneRefreshedLine) {
  std::ostringstream out, err;
  {
    Console console(out, err, true);
    console.progress("step 1");
    console.progress("step 2");
    console.log("saved");  // a log line replaces the progress line
    console.progress("step 3");
  }  // the console's destructor ends the last progress line with a newline
  EXPECT_EQ(err.str(), "step 1\r\033[Kstep 2\r\033[Ksaved\nstep 3\n");
}

TEST(Console, ATooLongProgressLineIsCutBetweenCharacters) {
  std::ostringstream out, err;
  Console console(out, err, true);
  std::string line;
  for (int i = 0; i < 2000; ++i) line += "ä";
  console.progress(line);
  EXPECT_LT(err.str().size(), line.size());
  EXPECT_EQ(err.str().size() % 2, 0u);
}

// Without a terminal the width is unknown and taken to be 80. Fields of a progress line that do not fit are left out as a whole.
TEST(Console, WhatDoesNotFitIsLeftOutWhole) {
  std::ostringstream out, err;
  Console console(out, err, true);
  console.progress("step 1/2  loss " + std::string(50, '5') + "  norm 7.793  lr 2.86e-04");
  EXPECT_EQ(err.str(), "step 1/2  loss " + std::string(50, '5') + "  norm 7.793");
}

TEST(Console, OnATerminalLinesWrapBetweenWords) {
  std::ostringstream out, err;
  Console console(out, err, true, false, true);
  const std::string word(30, 'w'), command = "  spillway train " + word + " " + word + " " + word;
  console.log("  a " + word + " " + word + " " + word + "\nshort");
  EXPECT_EQ(err.str(), "  a " + word + " " + word + "\n      " + word + "\nshort\n");
  console.result(command);
  EXPECT_EQ(out.str(), command + "\n") << "is to be pasted";
  out.str("");
  console.result(std::string(100, 'x') + " " + word);
  EXPECT_EQ(out.str(), std::string(100, 'x') + " " + word + "\n") << "a long word, as a path, stays as it is";
}

TEST(Console, QuietSilencesProgressAndLogAlone) {
  std::ostringstream out, err;
  Console console(out, err, true);
  console.set_quiet(true);
  console.progress("step 1");
  console.log("a line");
  console.warn("careful");
  console.result("a result");
  EXPECT_EQ(err.str(), "warning: careful\n");
  EXPECT_EQ(out.str(), "a result\n");
}

TEST(Console, ColourOnlyWhereItIsTaken) {
  std::ostringstream out, err;
  EXPECT_EQ(Console(out, err).painted("red", Colour::red), "red");
  EXPECT_EQ(Console(out, err, false, true).painted("red", Colour::red), "\033[31mred\033[0m");
  EXPECT_EQ(Console(out, err, false, true).painted("plain", Colour::none), "plain");
}

// If stderr is a pipe, passing() writes at most one line every five seconds. A recorder gets lines of all other kinds while it is set.
TEST(Console, PassingLinesAndTheRecord) {
  std::ostringstream out, err;
  Console console(out, err);
  for (int k = 0; k < 100; ++k) console.passing("line " + std::to_string(k));
  EXPECT_EQ(err.str(), "line 0\n");
  console.log("a line");
  std::string record;
  console.record([&](std::string_view line) { record += std::string(line) + "|"; });
  console.warn("careful");
  console.result("a result");
  console.record({});
  console.log("unrecorded");
  EXPECT_EQ(record, "a line|warning: careful|a result|");
}

TEST(Console, LongWorkGivesASignOfLife) {
  std::ostringstream out, err;
  Console console(out, err);
  { const Working quick(console, "quick", std::chrono::milliseconds(10'000)); }
  EXPECT_EQ(err.str(), "");
  {
    const Working slow(console, "slow", std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_TRUE(err.str().starts_with("slow: ")) << err.str();
  EXPECT_NE(err.str().find(" so far\n"), std::string::npos);
  std::atomic<int> done = 0;
  err.str("");
  {
    const Working counted(
        console, [&] { return fmt::format("counted, {} of 1000", ++done); }, std::chrono::milliseconds(5));
    while (done < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(err.str().starts_with("counted, 1 of 1000: ")) << err.str();
  EXPECT_NE(err.str().find("counted, 2 of 1000: "), std::string::npos) << err.str();
}

TEST(Signals, BecomeAFlag) {
  install_stop_handlers();
  clear_stop();
  EXPECT_FALSE(stop_requested());
  EXPECT_STREQ(stop_signal(), "");
  for (const auto& [signal, name] : {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGUSR1, "SIGUSR1"), std::pair(SIGINT, "SIGINT")}) {
    std::raise(signal);
    EXPECT_TRUE(stop_requested());
    EXPECT_STREQ(stop_signal(), name);
    std::raise(SIGUSR2);
    EXPECT_STREQ(stop_signal(), name) << "the first counts";
    clear_stop();
    EXPECT_FALSE(stop_requested());
  }
  // A rank may get one Ctrl-C as two SIGINTs: from the terminal, and forwarded by
  // its parent process. The forwarded one does not count as a second interrupt.
  hand_signal_on(getpid(), SIGINT);
  EXPECT_STREQ(stop_signal(), "SIGINT");
  std::raise(SIGINT);
  clear_stop();
}

TEST(SignalsDeathTest, ASecondInterruptLeavesAtOnce) {
  EXPECT_EXIT(
      {
        install_stop_handlers();
        set_stop_answers("stopping after this step", "left without saving");
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "^stopping after this step\nleft without saving\n$");
  EXPECT_EXIT(
      {
        install_stop_handlers();
        std::raise(SIGTERM);
        std::raise(SIGTERM);  // batch systems may send the same signal twice
        _exit(stop_requested() ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace spillway::app::console_test
