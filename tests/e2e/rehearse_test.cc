// Tests train --rehearse, a short trial of a run: it reports what it found, leaves nothing behind, and detects faults planted in each of
// its phases.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/e2e/support_program.h"

namespace spillway::test::rehearse_test {
namespace {

namespace fs = std::filesystem;

// These flags make the ranks threads of one process. Ranks that are processes would share a file of 16 MiB, which is larger than some of
// these tests allow files to be.
const Args kTwoThreads = {"--ranks", "2", "--communicator", "local"};

// Returns the parent of a running process, or nothing if the process has ended, even if nobody has waited for it yet.
std::optional<pid_t> parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  std::getline(file, stat);  // the process may end while its file is read; the line is then empty
  if (stat.rfind(')') == stat.npos) return {};
  char state = 0;
  pid_t parent = 0;
  std::istringstream(stat.substr(stat.rfind(')') + 1)) >> state >> parent;
  return state == 'Z' ? std::nullopt : std::optional(parent);
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> all;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos && parent_of(std::stoi(name)) == parent) all.push_back(std::stoi(name));
  }
  return all;
}

// Returns the processes that `parent` started, and those that they started.
std::vector<pid_t> descendants_of(pid_t parent) {
  std::vector<pid_t> all = children_of(parent);
  for (size_t k = 0; k < all.size(); ++k) {
    for (const pid_t one : children_of(all[k])) all.push_back(one);
  }
  return all;
}

void flip(const fs::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(70'000);
  const char one = static_cast<char>(bytes.get());
  bytes.seekp(70'000);
  bytes.put(static_cast<char>(one ^ 64));
}

struct Rehearse : testing::Test {
  Workplace at;
  Rehearse() { at.write_text("text.txt", 60000); }

  static Args rehearsal(const Args& more = {}) {
    Args args = {"train",   "--rehearse", "--model",         "gpt2-tiny", "--data",        "text.txt", "--sequence-length", "64",
                 "--steps", "100000",     "--device-memory", "64MiB",     "--host-memory", "64MiB",    "--threads",         "1",
                 "--out",   "run"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static Args on_nvme(const Args& more = {}) {
    Args args = rehearsal({"--ranks", "2", "--nvme", "scratch", "--place-optimizer", "nvme"});
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(at.path())) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == "text.txt" || name == "stdout.txt" || name == "stderr.txt") << name;
    }
  }
  void expect_caught(const Finished& f, int status, const std::string& phase, const std::string& words) const {
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_TRUE(mentions(f.err, "spillway train: [rehearse] " + phase)) << f.err;
    EXPECT_TRUE(mentions(f.err, words)) << f.err;
    expect_nothing_left();
  }

  fs::path in(const std::string& name) const { return at / ("run.rehearsal/" + name); }
  size_t steps(const std::string& run) const {
    const std::string lines = at.read("run.rehearsal/" + run + "/metrics.jsonl");
    return static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  std::vector<fs::path> saved(const std::string& run) const {
    std::vector<fs::path> all;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(in(run + "/checkpoints"), none)) {
      if (entry.path().filename().string().find('.') == std::string::npos) all.push_back(entry.path());
    }
    return all;
  }

  bool has_histograms(const std::string& run) const {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(in(run), none)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("events.") && mentions(at.read("run.rehearsal/" + run + "/" + name), "weights/transformer.wte")) return true;
    }
    return false;
  }

  // While the program runs, calls `tamper` every millisecond until it returns true.
  Finished while_watching(const Args& args, const std::function<bool()>& tamper) const {
    std::atomic<bool> over = false;
    std::thread other([&] {
      while (!over && !tamper()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    const Finished f = at.spillway(args);
    over = true;
    other.join();
    return f;
  }
  // Returns a function that, once the file `said` exists, limits the processes that the program started to small files.
  std::function<bool()> small_files_from(const std::string& said) const {
    return [this, said] {
      if (!fs::exists(in(said))) return false;
      const rlimit small{4 << 20, 4 << 20};
      for (const pid_t one : descendants_of(at.pid())) ::prlimit(one, RLIMIT_FSIZE, &small, nullptr);
      return false;
    };
  }
};
using RehearseMore = Rehearse;

// These tests start many whole processes. Under a sanitizer the first few tests are enough.
using RehearseRelease = Rehearse;

TEST_F(Rehearse, SaysWhatItTookAndLeavesNothing) {
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* piece : {" steps with the same bits after kill -9 ", "planned    measured", "a step ", "peak device ", "peak process ",
                            "a save: blocked ", " the plan"})
    EXPECT_TRUE(mentions(f.out, piece)) << piece << " in\n" << f.out;
  for (const char* phase : {"the first step", "a save during training, then kill -9", "resuming after the kill",
                            "the same number of steps without a kill", "comparing"})
    EXPECT_TRUE(mentions(f.err, std::string("rehearsal: ") + phase + "\n")) << phase << " in\n" << f.err;
  expect_nothing_left();
}

TEST_F(RehearseRelease, SetsMemoryBesideThePlan) {
  const Finished f = at.spillway(on_nvme({"--json"}));
  EXPECT_EQ(f.status, 0) << f.err;
  const auto all = nlohmann::json::parse(f.out, nullptr, false);
  EXPECT_GE(all.value("steps_compared", 0), 3) << f.out;
  std::map<std::string, nlohmann::json> rows;
  for (const auto& row : all["plan"]) rows[row["what"]] = row;
  for (const char* what : {"a step", "peak device", "peak host", "peak nvme", "peak process"}) {
    EXPECT_GT(rows[what].value("planned", 0.0), 0) << what << " in " << f.out;
    EXPECT_GT(rows[what].value("measured", 0.0), 0) << what << " in " << f.out;
    const bool above = rows[what].value("measured", 0.0) > 1.005 * rows[what].value("planned", 0.0);
    EXPECT_EQ(mentions(all["above_plan"].dump(), what), above) << what << " in " << f.out;
  }
  expect_nothing_left();
}

TEST_F(RehearseMore, OnTwoRanks) {
  const Finished f = at.spillway(rehearsal({"--ranks", "2", "--zero-stage", "2"}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.out, " steps with the same bits")) << f.out;
  expect_nothing_left();
}

TEST_F(RehearseRelease, StartedByOneWhoHearsOfNoChild) {
  at.before_start([] { ::signal(SIGCHLD, SIG_IGN); });
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 0) << f.err;
  expect_nothing_left();
}

// Shows that validation, a sample and histograms happen once each, at the rehearsal's last step. The sample uses the user's prompt.
TEST_F(RehearseRelease, ValidatesSamplesAndCountsWhereTheRunDoes) {
  std::string said;
  bool counted = false;
  const Args args = rehearsal({"--ranks", "2", "--pipeline-stages", "2", "--gradient-accumulation-steps", "2", "--validation-fraction",
                               "0.1", "--validate-every", "50", "--validation-steps", "7", "--sample-every", "50", "--prompt=--and the",
                               "--histograms-every", "50", "--json"});
  const Finished f = while_watching(args, [&] {
    const std::string now = at.read("run.rehearsal/gone-on.txt");
    if (now.size() > said.size()) said = now;
    counted = counted || (fs::exists(in("gone-on.txt")) && has_histograms("killed"));
    return false;
  });
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_GT(nlohmann::json::parse(f.out, nullptr, false).value("validation_loss", 0.0), 1) << f.out;
  EXPECT_TRUE(mentions(said, "sample: --and the")) << said;
  EXPECT_TRUE(counted);
  expect_nothing_left();
}

// Shows that --warmup-steps 0 can be rehearsed. With another warm-up the rehearsal would have another learning rate curve.
TEST_F(RehearseRelease, WithoutAWarmUp) {
  const Finished f = at.spillway(rehearsal({"--warmup-steps", "0"}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.out, "peak process ")) << f.out;
  expect_nothing_left();
}

TEST_F(RehearseRelease, OfAFolderWithASlashBehindIt) {
  const Finished f = at.spillway(with(rehearsal(), "--out", "ru ns/q: 1/"));
  EXPECT_EQ(f.status, 0) << f.err;
  expect_nothing_left();
}

TEST_F(RehearseRelease, LeavesTheRunThatIsThere) {
  Args train = with(rehearsal(), "--steps", "2");
  train.erase(std::find(train.begin(), train.end(), "--rehearse"));
  ASSERT_EQ(at.spillway(train).status, 0);
  const std::string before = at.read("run/metrics.jsonl") + at.read("run/log.txt");
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "rehearses a new run; ")) << f.err;
  EXPECT_EQ(at.read("run/metrics.jsonl") + at.read("run/log.txt"), before);
  EXPECT_FALSE(fs::exists(at / "run.rehearsal"));
}

TEST_F(RehearseRelease, GivesASignOfLife) {
  const Finished f = while_watching(rehearsal(), [&] {
    const std::vector<pid_t> started = fs::exists(in("killed.txt")) ? children_of(at.pid()) : std::vector<pid_t>();
    if (started.empty()) return false;
    ::kill(started[0], SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(5400));
    ::kill(started[0], SIGCONT);
    return true;
  });
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "rehearsal: the first step: 5.0 s so far")) << f.err;
}

// Shows that a rehearsal is refused if a launcher started the ranks, because all of them would have to rehearse.
TEST_F(Rehearse, UnderALauncherIsRefused) {
  at.before_start([] {
    for (const auto& [name, value] : {std::pair("RANK", "0"),
                                      {"WORLD_SIZE", "2"},
                                      {"LOCAL_RANK", "0"},
                                      {"LOCAL_WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "localhost"},
                                      {"MASTER_PORT", "1"}})
      ::setenv(name, value, 1);
  });
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "[--rehearse] expected to start the ranks itself")) << f.err;
  expect_nothing_left();
}

// Shows that the rehearsal repeats the whole message of the run, including the table after its first line.
TEST_F(Rehearse, WhatCannotBeginIsCaught) {
  const Args args = with(rehearsal(), "--device-memory", "1MiB");
  const Finished f = at.spillway(args);
  expect_caught(f, 3, "the first step: ", "[plan] it does not fit");
  EXPECT_TRUE(mentions(f.err, "The first suggestion's plan:")) << f.err;
}

TEST_F(RehearseRelease, NumbersThatAreNoneAreCaught) {
  expect_caught(at.spillway(rehearsal({"--learning-rate", "1e30"})), 7, "step ", "expected a finite ");
  expect_caught(at.spillway(rehearsal({"--learning-rate", "1e30", "--ranks", "2"})), 7, "step ", "expected a finite ");
}

TEST_F(RehearseRelease, ARankThatDiesIsCaught) {
  const Finished f = while_watching(rehearsal({"--ranks", "2"}), [&] {
    const std::vector<pid_t> all = fs::exists(in("killed/lock")) ? descendants_of(at.pid()) : std::vector<pid_t>();
    if (all.size() < 3) return false;
    ::kill(all.back(), SIGKILL);
    return true;
  });
  expect_caught(f, 6, "", "killed by signal 9 (SIGKILL)");
}

// Shows that a rehearsal reports a save that fails, of which a training run only warns. The rehearsed run is asked to stop, and then its
// last save fails too.
TEST_F(RehearseRelease, ASaveOnTheWayThatFailsIsCaught) {
  at.before_start([] {
    const rlimit small{4 << 20, 4 << 20};
    ::setrlimit(RLIMIT_FSIZE, &small);
  });
  expect_caught(at.spillway(rehearsal()), 5, "a save during training, then kill -9: expected a checkpoint", "File too large");
  expect_caught(at.spillway(rehearsal(kTwoThreads)), 5, "a save during training, then kill -9: expected a checkpoint", "File too large");
}

// Lets another process kill the rehearsed run before it has saved.
TEST_F(RehearseRelease, OneThatIsKilledBeforeItSavesIsCaught) {
  const Finished f = while_watching(rehearsal(), [&] {
    const std::vector<pid_t> started = fs::exists(in("killed.txt")) ? children_of(at.pid()) : std::vector<pid_t>();
    if (started.empty()) return false;
    ::kill(started[0], SIGKILL);
    return true;
  });
  expect_caught(f, 137, "the first step: ", "status 137");
}

TEST_F(RehearseRelease, OneThatDoesNotGoOnIsCaught) {
  for (const char* ranks : {"1", "2"}) {
    const Finished f = while_watching(rehearsal({"--ranks", ranks}), [&] {
      for (const fs::path& checkpoint : saved("killed")) {
        std::error_code none;
        if (fs::exists(checkpoint / "manifest.json", none)) std::ofstream(checkpoint / "manifest.json") << "{";
      }
      return false;
    });
    expect_caught(f, 4, "resuming after the kill: ", "manifest.json");
  }
}

TEST_F(RehearseRelease, ALastSaveThatFailsIsCaught) {
  expect_caught(while_watching(rehearsal(), small_files_from("gone-on.txt")), 5, "resuming after the kill, and a save: ", "File too large");
  expect_caught(while_watching(rehearsal(kTwoThreads), small_files_from("gone-on.txt")), 5,
                "resuming after the kill, and a save: ", "File too large");
}

TEST_F(RehearseRelease, ALastSaveThatIsNotWhatWasSavedIsCaught) {
  for (const char* ranks : {"1", "2"}) {
    std::optional<size_t> before;
    const Finished f = while_watching(rehearsal({"--ranks", ranks}), [&] {
      if (!before && fs::exists(in("gone-on.txt"))) before = steps("killed");
      for (const fs::path& checkpoint : saved("killed")) {
        if (!before || std::stoul(checkpoint.filename().string().substr(5)) < *before + 2) continue;
        flip(checkpoint / "model.safetensors");
        return true;
      }
      return false;
    });
    expect_caught(f, 4, "resuming after the kill, and a save: ", "model.safetensors");
  }
}

TEST_F(RehearseRelease, ASaveOnStoppingThatFailsIsCaught) {
  expect_caught(while_watching(on_nvme(), small_files_from("straight.txt")), 5, "the same number of steps without a kill",
                "File too large");
}

TEST_F(RehearseRelease, ACheckpointThatIsNotWhatWasSavedIsCaught) {
  for (const char* ranks : {"1", "2"}) {
    const Finished f = while_watching(rehearsal({"--ranks", ranks}), [&] {
      const std::vector<fs::path> all = saved("straight");
      if (!all.empty()) flip(all[0] / "model.safetensors");
      return !all.empty();
    });
    expect_caught(f, 4, "the same number of steps without a kill, and a save: ", "model.safetensors");
  }
}

TEST_F(RehearseRelease, OtherBitsAreCaught) {
  for (const char* ranks : {"1", "2"}) {
    const Finished f = while_watching(rehearsal({"--ranks", ranks}), [&] {
      if (!fs::exists(in("straight.txt"))) return false;
      const size_t loss = at.read("run.rehearsal/killed/metrics.jsonl").find("\"loss\":");
      std::fstream file(in("killed/metrics.jsonl"), std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(loss) + 7);
      file.put('9');
      return true;
    });
    expect_caught(f, 7, "step 1: expected the same loss ", "got 5.");
  }
}

TEST_F(RehearseMore, CtrlCLeavesNothing) {
  for (const char* when : {"killed/checkpoints", "gone-on.txt", "straight/metrics.jsonl"}) {
    const Finished f = at.spillway_until(
        on_nvme(), [&] { return fs::exists(in(when)); }, SIGINT);
    EXPECT_EQ(f.status, 130) << f.err;
    EXPECT_TRUE(mentions(f.err, "rehearsal stopped by SIGINT: nothing is left behind")) << f.err;
    expect_nothing_left();
  }
}

// Shows that processes started by a killed rehearsal die with it. The next rehearsal removes
// its leftovers, even on scratch paths that the next one does not use.
TEST_F(RehearseRelease, AfterOneThatWasKilled) {
  std::vector<pid_t> started;
  const Finished killed = at.spillway_until(
      on_nvme(), [&] { return fs::exists(in("killed/metrics.jsonl")) && (started = descendants_of(at.pid())).size() == 3; }, SIGKILL);
  ASSERT_EQ(killed.status, 137) << killed.err;
  EXPECT_FALSE(fs::is_empty(at / "scratch"));
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 0) << f.err;
  for (const pid_t one : started) EXPECT_FALSE(parent_of(one)) << one;
  expect_nothing_left();
}

TEST_F(RehearseRelease, TakesNobodysFolder) {
  fs::create_directories(at / "run.rehearsal");
  at.write("run.rehearsal/mine", "x");
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "[rehearse] expected run.rehearsal ")) << f.err;
  EXPECT_EQ(at.read("run.rehearsal/mine"), "x");
}

}  // namespace
}  // namespace spillway::test::rehearse_test
