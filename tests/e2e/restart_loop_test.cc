// Kills a run again and again, during its start or its training, and starts it each time in another way: by the same command, by one that
// is refused, with its data in other tiers, on other ranks or paths, or with a bit flipped in its newest checkpoint. No start goes back
// behind the newest whole checkpoint or state. At last the right command ends with bitwise the results of a run that was never stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>

#include "tests/e2e/support_program.h"

namespace spillway::test::restart_loop_test {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 120, kEvery = 16;

Args right_command(const std::string& out) {
  return small_run(out, kSteps, "16MiB",
                   {"--checkpoint-every", std::to_string(kEvery), "--keep", "3", "--nvme", "scratch/a", "--nvme", "scratch/b",
                    "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"});
}

// Describes a way to start the run again. `status` is the exit status of its refusal; 0 means that it may run until it is killed.
struct Way {
  const char* name;
  int status;
  Args (*of)(Args);
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"the same", 0, [](Args a) { return a; }},
      {"the same again", 0, [](Args a) { return a; }},
      {"another learning rate", 2, [](Args a) { return with(a, "--learning-rate", "2e-3"); }},
      {"never resumed", 2, [](Args a) { return with(a, "--resume", "never"); }},
      {"no room", 3, [](Args a) { return with(a, "--device-memory", "1KiB"); }},
      {"gradients in host memory", 0, [](Args a) { return with(a, "--place-gradients", "host"); }},
      {"state in host memory", 0, [](Args a) { return with(a, "--place-optimizer", "host"); }},
      {"durable steps", 0, [](Args a) { return with(a, "--durability", "step"); }},
      {"paths swapped", 0,
       [](Args a) {
         std::swap(*std::find(a.begin(), a.end(), "scratch/a"), *std::find(a.begin(), a.end(), "scratch/b"));
         return a;
       }},
      {"one path", 0,
       [](Args a) {
         const auto second = std::find(a.begin(), a.end(), "scratch/b");
         a.erase(second - 1, second + 1);
         return a;
       }},
      {"two ranks", 0, [](Args a) { return with(with(a, "--ranks", "2"), "--pipeline-stages", "2"); }},
  };
  return all;
}

// Returns the number that follows `before` in the text, or -1 if there is none.
int number_after(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  if (at == text.npos) return -1;
  int number = -1;
  std::from_chars(text.data() + at + before.size(), text.data() + text.size(), number);
  return number;
}

// Returns whether a start refused to abandon a state on nvme, because the run has no checkpoint.
bool keeps_the_only_state(const Finished& f) { return f.status == 2 && mentions(f.err, "is the only saved state of the run in run"); }

class RestartLoop : public testing::Test {
 protected:
  RestartLoop() {
    at.write_text("text.txt", 60000);
    for (const char* path : {"scratch", "scratch/a", "scratch/b"}) fs::create_directory(at / path);
    EXPECT_EQ(at.spillway(right_command("straight")).status, 0);
  }

  void loop(unsigned seed, int rounds) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    trained_ = nullptr;
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      if (random_() % 5 == 0) flip_newest();
      start(ways()[random_() % ways().size()]);
    }
    if (!HasFailure()) end_well();
    for (const char* path : {"run", "scratch/a", "scratch/b"}) fs::remove_all(at / path);
    for (const char* path : {"scratch/a", "scratch/b"}) fs::create_directory(at / path);
  }

 private:
  std::vector<fs::path> checkpoints() const {
    std::vector<fs::path> all;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(at / "run/checkpoints", none_yet)) {
      if (entry.path().filename().string().find('.') == std::string::npos) all.push_back(entry.path());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  // Damages the newest checkpoint if a whole one exists before it. The checkpoint of the last step is left
  // alone, because a finished run is not read any more, but inspect --verify would read it.
  void flip_newest() {
    const std::vector<fs::path> all = checkpoints();
    if (all.size() < 2 || all.back() == flipped_ || number_after(all.back().string(), "step-") == kSteps) return;
    flipped_ = all.back();
    const std::string name = fs::relative(flipped_ / "optimizer.safetensors", at.path()).string();
    std::string bytes = at.read(name);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 64);
    at.write(name, bytes);
  }

  // Returns the step of the newest whole checkpoint. No later start may begin before that step.
  int newest_whole() const {
    std::vector<fs::path> all = checkpoints();
    if (!all.empty() && all.back() == flipped_) all.pop_back();
    return all.empty() ? 0 : number_after(all.back().string(), "step-");
  }

  void start(const Way& way) {
    const int whole = newest_whole();
    if (way.status == 2 && whole == 0) return;  // without a whole checkpoint, such a start would not be refused
    const auto pause = std::chrono::milliseconds(way.status != 0 ? 60'000 : random_() % 1500);
    const auto begin = std::chrono::steady_clock::now();
    const Finished f = at.spillway_until(
        way.of(right_command("run")), [&] { return std::chrono::steady_clock::now() - begin > pause; }, SIGKILL);
    said_ += std::string(way.name) + ": " + f.err + "\n";
    if (way.status != 0) {
      EXPECT_TRUE(f.status == way.status || f.status == 0) << way.name << ": " << f.status << "\n" << said_;
    } else if (keeps_the_only_state(f)) {
      EXPECT_EQ(whole, 0) << way.name << "\n" << said_;
    } else {
      EXPECT_TRUE(f.status == 0 || f.status == 128 + SIGKILL) << way.name << ": " << f.status << "\n" << said_;
    }
    if (mentions(f.err, "new run of ") || mentions(f.err, "continues at step ")) trained_ = &way;
    if (mentions(f.err, "new run of ")) {
      EXPECT_EQ(whole, 0) << said_;
    } else if (const int from = number_after(f.err, "continues at step "); from >= 0) {
      EXPECT_GE(from, whole) << said_;
    }
  }

  void end_well() {
    Finished f = at.spillway(right_command("run"));
    said_ += "at last: " + f.err + "\n";
    if (keeps_the_only_state(f)) {  // on a slow machine no start may have come to its first checkpoint: the way that made the state does
      ASSERT_TRUE(newest_whole() == 0 && trained_) << said_;
      f = at.spillway_until(
          trained_->of(right_command("run")), [&] { return newest_whole() > 0; }, SIGKILL);
      said_ += std::string("up to a checkpoint, ") + trained_->name + ": " + f.err + "\n";
      f = at.spillway(right_command("run"));
      said_ += "at last: " + f.err + "\n";
    }
    ASSERT_EQ(f.status, 0) << said_;
    expect_numbers();
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string last = "/checkpoints/step-00000" + std::to_string(kSteps) + "/" + file;
      EXPECT_GT(at.read("straight" + last).size(), 100'000u);
      EXPECT_TRUE(at.read("run" + last) == at.read("straight" + last)) << file << said_;
    }
  }

  // Checks that each step's line equals that of the undisturbed run. A state that was set
  // aside and comes back may be ahead of the lines; the program then says so.
  void expect_numbers() const {
    const std::vector<std::string> want = numbers_of(at.metrics("straight")), got = numbers_of(at.metrics("run"));
    size_t next = 0, missing = 0;
    for (const std::string& line : got) {
      const size_t at_line = static_cast<size_t>(std::find(want.begin(), want.end(), line) - want.begin());
      ASSERT_LT(at_line, want.size()) << line << said_;
      ASSERT_GE(at_line, next) << line << said_;
      missing += at_line - next;
      next = at_line + 1;
    }
    EXPECT_EQ(next, want.size()) << said_;
    EXPECT_TRUE(missing == 0 || mentions(said_, "metrics.jsonl has no lines for steps ")) << missing << "\n" << said_;
  }

  Workplace at;
  std::mt19937 random_;
  fs::path flipped_;
  const Way* trained_ = nullptr;  // the way of the last start that trained
  std::string said_;
};

using RestartLoopRelease = RestartLoop;
TEST_F(RestartLoopRelease, EndsWithTheBitsOfARunThatWasNeverStopped) { loop(1, 6); }

using SoakRestartLoop = RestartLoop;
TEST_F(SoakRestartLoop, EndsWithTheBitsOfARunThatWasNeverStopped) {
  for (unsigned seed = 2; seed < 14 && !HasFailure(); ++seed) loop(seed, 14);
}

}  // namespace
}  // namespace spillway::test::restart_loop_test
