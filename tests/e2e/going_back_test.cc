// Tests starts that do not simply continue: from an earlier checkpoint, with fewer steps, without the run's config.json or half of its
// scratch folders, and beside a process that is still saving. None of them silently loses what was there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::going_back_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFourth = "run/checkpoints/step-00000004";

Args to_step(int steps, const Args& more = {}, const std::string& out = "run") {
  Args args =
      small_run(out, steps, "64MiB", {"--checkpoint-every", "2", "--keep", "9", "--lr-schedule", "constant", "--warmup-steps", "0"});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct GoingBack : testing::Test {
  Workplace at;
  GoingBack() { at.write_text("text.txt", 60000); }

  void expect_says(const Finished& f, int status, std::initializer_list<std::string> words) const {
    EXPECT_EQ(f.status, status) << f.out << f.err;
    for (const std::string& word : words) EXPECT_TRUE(mentions(f.out + f.err, word)) << word << ": " << f.out << f.err;
  }
};

TEST_F(GoingBack, ToAnEarlierCheckpointKeepsTheLaterOnesApart) {
  ASSERT_EQ(at.spillway(to_step(8)).status, 0);
  const Args changed = with(to_step(7), "--learning-rate", "5e-3");
  Args back = changed;
  back.insert(back.end(), {"--resume", kFourth, "--allow-change", "learning_rate"});
  expect_says(at.spillway(back), 0, {"continues at step 4 of 7", "step-00000006.left", "step-00000008.left", "done: step 7"});
  EXPECT_TRUE(fs::exists(at / "run/checkpoints/step-00000008.left/model.safetensors"));
  EXPECT_TRUE(fs::exists(at / "run/checkpoints/step-00000007/model.safetensors"));
  // The next start continues from step 7, at which the start with --resume ended.
  expect_says(at.spillway(with(changed, "--steps", "9")), 0, {"continues at step 7 of 9"});
}

// Shows that other data at the run's path is not trained on unless that is allowed: the run's position means nothing in other data.
TEST_F(GoingBack, OtherDataAtItsPathIsNotTakenForTheRuns) {
  ASSERT_EQ(at.spillway(to_step(4)).status, 0);
  const std::string text = at.read("text.txt"), config = at.read("run/config.json"), metrics = at.read("run/metrics.jsonl");
  std::string changed = text;
  std::reverse(changed.begin(), changed.end());
  for (const std::string& other : {changed, text + text.substr(0, 1000), text.substr(0, text.size() / 2)}) {
    at.write("text.txt", other);
    expect_says(at.spillway(to_step(8)), 2,
                {"expected in --data the same contents that the run was trained on up to step 4", "--allow-change data"});
  }
  EXPECT_EQ(at.read("run/config.json"), config);
  EXPECT_EQ(at.read("run/metrics.jsonl"), metrics);
  expect_says(at.spillway(to_step(6, {"--allow-change", "data"})), 0, {"continues at step 4 of 6", "done: step 6"});
  expect_says(at.spillway(to_step(8)), 0, {"continues at step 6 of 8"});  // the file holds the data of the run's last steps
  at.write("text.txt", text);
  expect_says(at.spillway(to_step(10)), 2, {"up to step 8"});
  // With another sequence length the rows are cut differently, but the data are the same, so only the length has to be allowed.
  at.write("text.txt", text.substr(0, text.size() / 2));
  const Args longer = with(to_step(10, {"--allow-change", "sequence_length"}), "--sequence-length", "32");
  expect_says(at.spillway(longer), 0, {"continues at step 8 of 10"});
}

// Shows that a copy on a job's scratch disk, an absolute path or a symlink is the same data: contents count, not paths.
TEST_F(GoingBack, TheSameContentsAtAnotherPathAreTheSameRun) {
  ASSERT_EQ(at.spillway(to_step(4)).status, 0);
  for (const char* folder : {"job1", "job2"}) fs::create_directory(at / folder);
  fs::copy(at / "text.txt", at / "job1/other.txt");
  fs::create_symlink(at / "text.txt", at / "job2/link.txt");
  const auto trained_on = [&](int steps, const std::string& data, const Args& more = {}) {
    return at.spillway(with(to_step(steps, more), "--data", data));
  };
  expect_says(trained_on(6, "job1/other.txt"), 0, {"continues at step 4 of 6", "the same contents at another path: data", "done: step 6"});
  expect_says(trained_on(8, (at / "text.txt").string()), 0, {"continues at step 6 of 8"});
  expect_says(trained_on(10, "job2/link.txt"), 0, {"continues at step 8 of 10"});
  // The start names data with changed contents and is refused: the message names the path, and no file of the run changes.
  std::string changed = at.read("text.txt");
  std::reverse(changed.begin(), changed.end());
  at.write("job1/other.txt", changed);
  const std::string config = at.read("run/config.json"), contents = at.read("run/contents.json");
  expect_says(trained_on(12, "job1/other.txt"), 2, {"expected in --data", "got other contents in job1/other.txt", "--allow-change data"});
  EXPECT_EQ(at.read("run/config.json") + at.read("run/contents.json"), config + contents);
  // Once --allow-change has allowed the changed data, that data belongs to the run, even if the start that was allowed to use it saves
  // nothing.
  const Args unsaved = with(to_step(12, {"--allow-change", "data", "--no-final-checkpoint"}), "--checkpoint-every", "100");
  expect_says(at.spillway(with(unsaved, "--data", "job1/other.txt")), 0, {"--data has other contents from step 11 on", "done: step 12"});
  expect_says(trained_on(12, "text.txt"), 2, {"got other contents in text.txt"});
  expect_says(trained_on(12, "job1/other.txt"), 0, {"continues at step 10 of 12"});
  at.write("job1/other.txt", changed + changed);
  expect_says(trained_on(14, "job1/other.txt"), 2, {"got other contents in job1/other.txt"});
}

// Shows that a run without --out is found even if the flags name the data by another path. Its folder's name follows from the flags.
TEST_F(GoingBack, ARunWithoutOutIsFoundByItsContents) {
  const auto train = [&](int steps, const std::string& data) {
    Args args = with(to_step(steps), "--data", data);
    const auto out = std::ranges::find(args, "--out");
    args.erase(out, out + 2);
    return at.spillway(args);
  };
  ASSERT_EQ(train(2, "text.txt").status, 0);
  expect_says(train(4, (at / "text.txt").string()), 0, {"continues at step 2 of 4"});
  at.write_text("longer.txt", 70000);
  expect_says(train(4, "longer.txt"), 0, {"new run of 4 steps"});
}

// Shows that the model folder, its tokenizer and an adapter are compared by contents too. A run
// of an older version recorded no contents, so what its paths hold now is compared.
TEST_F(GoingBack, AModelsFolderMayMove) {
  ASSERT_EQ(at.spillway(to_step(2)).status, 0);
  ASSERT_EQ(at.spillway({"export", "run", "--out", "model"}).status, 0);
  fs::copy(at / "model", at / "moved", fs::copy_options::recursive);
  const auto tuned = [&](int steps, const std::string& model) {
    return at.spillway(with(to_step(steps, {"--tokenizer", "bytes"}, "tuned"), "--model", model));
  };
  ASSERT_EQ(tuned(2, "model").status, 0);
  expect_says(tuned(4, "moved/"), 0, {"continues at step 2 of 4", "the same contents at another path: model"});
  fs::remove(at / "tuned/contents.json");
  expect_says(tuned(6, (at / "model").string()), 0, {"continues at step 4 of 6"});
  ASSERT_EQ(at.spillway(with(to_step(4), "--seed", "7")).status, 2);
  ASSERT_EQ(at.spillway(with(to_step(2, {}, "second"), "--seed", "7")).status, 0);
  ASSERT_EQ(at.spillway({"export", "second", "--out", "others"}).status, 0);
  expect_says(tuned(8, "others"), 2, {"expected in --model", "got other contents in others"});
}

// Shows that a command that names a checkpoint continues its own run when repeated, as by a batch job that is requeued.
TEST_F(GoingBack, TheSameCommandGoesOnThoughItNamesACheckpoint) {
  ASSERT_EQ(at.spillway(to_step(8)).status, 0);
  const Args from_fourth = to_step(200, {"--resume", std::string(kFourth) + "/"}, "other");
  const Finished killed = at.spillway_until(
      from_fourth, [&] { return fs::exists(at / "other/checkpoints/step-00000012"); }, SIGKILL);
  expect_says(killed, 128 + SIGKILL, {"continues at step 4 of 200"});
  const Finished again = at.spillway_until(
      from_fourth, [&] { return fs::exists(at / "other/checkpoints/step-00000030"); }, SIGKILL);
  EXPECT_FALSE(mentions(again.err, "continues at step 4 of 200")) << again.err;
  EXPECT_TRUE(mentions(again.err, "from the last checkpoint")) << again.err;
  EXPECT_TRUE(mentions(at.read("other/config.json"), kFourth)) << "it is still the same command";
  EXPECT_FALSE(mentions(again.err, ".left")) << again.err;
}

// Shows that a run that has saved no checkpoint starts again from the checkpoint that its command names, not from new weights.
TEST_F(GoingBack, TheSameCommandGoesOnThoughTheRunDiedBeforeItSaved) {
  ASSERT_EQ(at.spillway(to_step(8)).status, 0);
  const Args from_fourth = with(to_step(7, {"--resume", kFourth}, "other"), "--checkpoint-every", "100");
  const Args to_many = with(from_fourth, "--steps", "2000");
  const Finished killed = at.spillway_until(
      to_many, [&] { return at.metrics("other").size() > 2; }, SIGKILL);
  expect_says(killed, 128 + SIGKILL, {"continues at step 4 of 2000"});
  ASSERT_FALSE(fs::exists(at / "other/checkpoints/step-00000100"));
  expect_says(at.spillway(from_fourth), 0, {"continues at step 4 of 7 from", kFourth, "done: step 7"});
  // After its first own checkpoint the run does not need the named checkpoint, which the run that made it may have removed.
  fs::remove_all(at / kFourth);
  expect_says(at.spillway(with(from_fourth, "--steps", "9")), 0, {"continues at step 7 of 9 from the last checkpoint"});
}

TEST_F(GoingBack, WithoutItsConfigARunIsNotGuessedAt) {
  ASSERT_EQ(at.spillway(to_step(4)).status, 0);
  fs::rename(at / "run/config.json", at / "kept.json");
  expect_says(at.spillway(to_step(8)), 4, {"expected the run's config.json", "--resume PATH"});
  expect_says(at.spillway(to_step(8, {"--resume", "must"})), 4, {"expected the run's config.json"});
  expect_says(at.spillway(to_step(8, {"--resume", kFourth}, "other")), 0, {"continues at step 4 of 8", "cannot be checked"});
  fs::rename(at / "kept.json", at / "run/config.json");
  expect_says(at.spillway(to_step(8)), 0, {"continues at step 4 of 8"});
}

// Stops the second process while it plans, after it has looked for checkpoints. Meanwhile
// the first process, to which the run belongs, saves another checkpoint.
TEST_F(GoingBack, WhatWasSavedWhileAStartPlannedIsNotPassedOver) {
  ASSERT_EQ(at.spillway(to_step(4)).status, 0);
  const int notices = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(notices, (at / (std::string(kFourth) + "/manifest.json")).c_str(), IN_CLOSE_NOWRITE), 0);
  const Args args = to_step(8);
  std::array<char, 4096> events{};
  bool stopped = false;
  const Finished f = at.spillway_until(
      args,
      [&] {
        if (stopped || ::read(notices, events.data(), events.size()) <= 0) return stopped;
        ::kill(at.pid(), SIGSTOP);
        fs::copy(at / kFourth, at / "run/checkpoints/step-00000006", fs::copy_options::recursive);
        return stopped = true;
      },
      SIGCONT);
  ::close(notices);
  expect_says(f, 2, {"another process had run in use", "run the same command again"});
}

struct GoingBackOnNvme : NvmeRun {
  static Args to(const std::string& out, int steps, const Args& more = {}) {
    Args args = on_nvme(out, "none");
    *(std::find(args.begin(), args.end(), "--steps") + 1) = std::to_string(steps);
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void kill_after(const Args& args, size_t steps) const {
    const Finished f = at.spillway_until(
        args, [&] { return at.metrics("run").size() >= steps; }, SIGKILL);
    ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
  }
};
using GoingBackOnNvmeMore = GoingBackOnNvme;

TEST_F(GoingBackOnNvmeMore, FewerStepsThanTheStateHasAreRefused) {
  ASSERT_EQ(at.spillway(to("straight", kSteps)).status, 0);
  kill_after(to("run", kSteps, {"--warmup-steps", "0", "--lr-schedule", "constant"}), 12);
  const Finished f = at.spillway(to("run", 5, {"--warmup-steps", "0", "--lr-schedule", "constant"}));
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "state on nvme is from step ") && mentions(f.err, "--steps is 5")) << f.err;
  const Finished right = at.spillway(to("run", kSteps, {"--warmup-steps", "0", "--lr-schedule", "constant"}));
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_TRUE(mentions(right.err, "from the state on nvme")) << right.err;
}

TEST_F(GoingBackOnNvme, OtherDataAtItsPathIsNotTakenForTheStates) {
  kill_after(to("run", kSteps), 5);
  const std::string text = at.read("text.txt");
  at.write("text.txt", text.substr(7));
  const Finished f = at.spillway(to("run", kSteps));
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "expected in --data the same contents that the run was trained on")) << f.err;
  at.write("text.txt", text);
  const Finished right = at.spillway(to("run", kSteps));
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_TRUE(mentions(right.err, "from the state on nvme")) << right.err;
}

TEST_F(GoingBackOnNvme, AStateWhoseRunFolderIsGoneIsNotTakenWithOtherValues) {
  kill_after(to("run", kSteps), 5);
  fs::rename(at / "run", at / "kept");
  Args other = to("run", kSteps, {"--seed", "99"});
  const Finished f = at.spillway_until(
      other, [&] { return at.metrics("run").size() >= 2; }, SIGKILL);
  EXPECT_TRUE(mentions(f.err, "new run") && mentions(f.err, "was made with other option values") && mentions(f.err, "set aside as "))
      << f.err;
  // The option values of the run alone identify its state on nvme, even without the run's folder.
  for (const auto& entry : fs::directory_iterator(at / "scratch")) {
    if (!mentions(entry.path().string(), ".aside-")) fs::remove_all(entry.path());
  }
  fs::remove_all(at / "run");
  const Finished right = at.spillway(to("run", kSteps));
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_TRUE(mentions(right.err, "from the state on nvme")) << right.err;
}

TEST_F(GoingBackOnNvmeMore, AStateThatNotAllRanksHaveIsKept) {
  const Args two = {"--ranks", "2", "--pipeline-stages", "2"};
  ASSERT_EQ(at.spillway(to("straight", kSteps, two)).status, 0);
  kill_after(to("run", kSteps, two), 8);
  // Moves the folder of one rank away, as if it were on another node or on a disk that is not mounted.
  for (const auto& entry : fs::directory_iterator(at / "scratch")) {
    if (entry.path().filename().string().ends_with("-rank1")) fs::rename(entry.path(), at / "unmounted");
  }
  ASSERT_TRUE(fs::exists(at / "unmounted"));
  fs::remove(at / "run/metrics.jsonl");
  const Finished f = at.spillway_until(
      to("run", kSteps, two), [&] { return at.metrics("run").size() >= 2; }, SIGKILL);
  EXPECT_TRUE(mentions(f.err, "not all ranks have") && mentions(f.err, "new run")) << f.err;
  bool aside = false;
  for (const auto& entry : fs::directory_iterator(at / "scratch")) aside = aside || mentions(entry.path().string(), ".aside-");
  EXPECT_TRUE(aside);
  const Finished right = at.spillway(to("run", kSteps, two));
  EXPECT_EQ(right.status, 0) << right.err;
  expect_same_run("run", "straight");
}

}  // namespace
}  // namespace spillway::test::going_back_test
