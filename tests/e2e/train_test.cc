// Tests training as a user runs it: crash and resume, stopping, refusals, export and generation.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/support_program.h"
#include "tests/support/fixtures.h"

namespace spillway::test::train_test {
namespace {

namespace fs = std::filesystem;

Args with(Args base, const Args& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

// Returns the command line of a small run whose weights, gradients and state are all spilled to nvme.
Args spilled(const std::string& out, int steps = 20) {
  return {"train",
          "--model",
          "gpt2-tiny",
          "--data",
          "text.txt",
          "--sequence-length",
          "64",
          "--micro-batch-size",
          "2",
          "--steps",
          std::to_string(steps),
          "--learning-rate",
          "1e-3",
          "--out",
          out,
          "--device-memory",
          "16MiB",
          "--host-memory",
          "64MiB",
          "--nvme",
          "scratch",
          "--place-parameters",
          "nvme",
          "--place-gradients",
          "host",
          "--place-optimizer",
          "nvme",
          "--threads",
          "1"};
}

struct Training : testing::Test {
  const Workplace at;
  Training() { at.write_text("text.txt", 60000); }
};

// Folders of gpt-oss stack the weights of experts, and checkpoints do not. So that Hugging Face tools do not read a checkpoint with
// random weights for the names that they miss, it has no model.safetensors; this program goes on from it and exports it.
TEST_F(Training, CheckpointsOfStackedExpertsAreNotTakenForFolders) {
  std::string tokens;
  for (int i = 0; i < 4000; ++i) tokens += static_cast<char>(i * i % 31), tokens += '\0';
  at.write("tokens.bin", tokens);
  const auto run = [&](const std::string& out, int steps) {
    return Args{"train",
                "--model",
                (data("families/gpt-oss")).string(),
                "--data",
                "tokens.bin",
                "--sequence-length",
                "16",
                "--steps",
                std::to_string(steps),
                "--schedule-steps",
                "4",
                "--out",
                out};
  };
  for (const auto& [out, steps] : {std::pair("whole", 4), {"halves", 2}, {"halves", 4}}) {
    const Finished f = at.spillway(run(out, steps));
    ASSERT_EQ(f.status, 0) << f.err;
  }
  EXPECT_EQ(numbers_of(at.metrics("whole")), numbers_of(at.metrics("halves")));
  EXPECT_TRUE(fs::exists(at / "halves/checkpoints/step-00000004/weights.safetensors"));
  EXPECT_FALSE(fs::exists(at / "halves/checkpoints/step-00000004/model.safetensors"));
  const Finished exported = at.spillway({"export", "halves", "--out", "folder"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_TRUE(mentions(at.read("folder/model.safetensors"), "model.layers.0.mlp.experts.gate_up_proj"));
}

TEST_F(Training, LearnsAndLeavesACompleteRunFolder) {
  const Finished f = at.spillway(with(spilled("run", 30), {"--validation-fraction", "0.1"}));
  ASSERT_EQ(f.status, 0) << f.err;
  const auto rows = at.metrics("run");
  ASSERT_EQ(rows.size(), 30u);
  const auto first = nlohmann::json::parse(rows.front()), last = nlohmann::json::parse(rows.back());
  EXPECT_LT(last["loss"].get<double>(), first["loss"].get<double>() - 1);
  EXPECT_TRUE(last.contains("validation_loss"));
  EXPECT_GT(last["read_bytes"]["nvme"].get<long>(), 858880 * 8);
  EXPECT_GT(last["written_bytes"]["nvme"].get<long>(), 858880 * 8);
  EXPECT_LE(last["peak_bytes"]["device"].get<long>(), 16 << 20);
  for (const char* file :
       {"config.json", "log.txt", "checkpoints/step-00000030/manifest.json", "checkpoints/step-00000030/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(at / "run" / file)) << file;
  }
  EXPECT_TRUE(fs::is_empty(at / "scratch")) << "the run's scratch folder is removed";
  EXPECT_TRUE(mentions(f.err, "new run"));
  const Finished again = at.spillway(with(spilled("run", 30), {"--validation-fraction", "0.1"}));
  EXPECT_EQ(again.status, 0);
  EXPECT_TRUE(mentions(again.out, "finished")) << again.out << again.err;
}

TEST_F(Training, KilledRunGoesOnWithTheSameBits) {
  ASSERT_EQ(at.spillway(with(spilled("straight"), {"--checkpoint-every", "3"})).status, 0);
  const Args killed = with(spilled("killed"), {"--checkpoint-every", "3"});
  const Finished f = at.spillway_until(
      killed, [&] { return at.metrics("killed").size() >= 10; }, SIGKILL);
  ASSERT_EQ(f.status, 128 + SIGKILL) << "the run ended before it could be killed: " << f.err;
  const Finished rest = at.spillway(killed);
  ASSERT_EQ(rest.status, 0) << rest.err;
  // A save runs beside the next steps, so the save of step 9 may or may not have ended.
  EXPECT_TRUE(mentions(rest.err, "continues at step 6 of 20") || mentions(rest.err, "continues at step 9 of 20") ||
              mentions(rest.err, "continues at step 12 of 20") || mentions(rest.err, "continues at step 15 of 20"))
      << rest.err;
  EXPECT_EQ(numbers_of(at.metrics("killed")), numbers_of(at.metrics("straight")));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string want = at.read(std::string("straight/checkpoints/step-00000020/") + file);
    EXPECT_GT(want.size(), 858880u * 4);
    EXPECT_TRUE(at.read(std::string("killed/checkpoints/step-00000020/") + file) == want) << file;
  }
}

TEST_F(Training, StopsAtASignalAndGoesOnUnderAnotherPlacement) {
  ASSERT_EQ(at.spillway(spilled("straight")).status, 0);
  const Finished f = at.spillway_until(
      spilled("stopped"), [&] { return at.metrics("stopped").size() >= 5; }, SIGTERM);
  ASSERT_EQ(f.status, 75) << f.err;
  EXPECT_TRUE(mentions(f.err, "SIGTERM")) << f.err;
  const Finished rest =
      at.spillway({"train", "--model", "gpt2-tiny", "--data", "text.txt", "--sequence-length", "64", "--micro-batch-size", "2", "--steps",
                   "20", "--learning-rate", "1e-3", "--out", "stopped", "--device-memory", "64MiB", "--threads", "2"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "continues at step")) << rest.err;
  EXPECT_EQ(numbers_of(at.metrics("stopped")), numbers_of(at.metrics("straight")));
  EXPECT_TRUE(at.read("stopped/checkpoints/step-00000020/model.safetensors") ==
              at.read("straight/checkpoints/step-00000020/model.safetensors"));
}

// Each validation has some 40 micro-batches, so the signal arrives during a
// validation or in the step before one. In both cases a save comes next.
TEST_F(Training, ASignalBreaksAValidationOffAndTheNextStartMakesItUp) {
  at.write_text("held-out.txt", 5000);
  const Args more{"--validation-data", "held-out.txt", "--validate-every", "1"}, args = with(spilled("run", 4), more);
  ASSERT_EQ(at.spillway(with(spilled("straight", 4), more)).status, 0);
  const Finished f = at.spillway_until(
      args, [&] { return at.metrics("run").size() >= 1; }, SIGTERM);
  ASSERT_EQ(f.status, 75) << f.err;
  EXPECT_TRUE(mentions(f.err, "saved; run the same command again to go on, beginning with the validation after this step")) << f.err;
  EXPECT_FALSE(mentions(at.metrics("run").back(), "validation_loss")) << "half a validation is none";
  const Finished rest = at.spillway(args);
  ASSERT_EQ(rest.status, 0) << rest.err;
  ASSERT_EQ(at.metrics("run").size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(nlohmann::json::parse(at.metrics("run")[i])["validation_loss"],
              nlohmann::json::parse(at.metrics("straight")[i])["validation_loss"])
        << i;
  }
}

// Shows that an fp16 run goes on with its loss scale. A loss averaged over four tokens has gradients beyond fp16 at first; the loss scale
// is halved until they fit.
TEST_F(Training, AnFp16RunStopsAndGoesOnWithItsLossScale) {
  const auto fp16 = [](Args args) {
    *std::find(args.begin(), args.end(), "gpt2-tiny") = "llama-tiny";
    *std::find(args.begin(), args.end(), "64") = "4";
    *std::find(args.begin(), args.end(), "2") = "1";
    return with(std::move(args), {"--precision", "fp16"});
  };
  ASSERT_EQ(at.spillway(fp16(spilled("straight"))).status, 0);
  const Finished f = at.spillway_until(
      fp16(spilled("stopped")), [&] { return at.metrics("stopped").size() >= 8; }, SIGTERM);
  ASSERT_EQ(f.status, 75) << f.err;
  const Finished rest =
      at.spillway({"train", "--model", "llama-tiny", "--data", "text.txt", "--sequence-length", "4", "--micro-batch-size", "1", "--steps",
                   "20", "--learning-rate", "1e-3", "--out", "stopped", "--device-memory", "64MiB", "--precision", "fp16"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "continues at step")) << rest.err;
  EXPECT_EQ(numbers_of(at.metrics("stopped")), numbers_of(at.metrics("straight")));
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    EXPECT_TRUE(at.read(std::string("stopped/checkpoints/step-00000020/") + file) ==
                at.read(std::string("straight/checkpoints/step-00000020/") + file))
        << file;
  }
  const auto first = nlohmann::json::parse(at.metrics("straight").front()), last = nlohmann::json::parse(at.metrics("straight").back());
  EXPECT_LT(last["loss_scale"], first["loss_scale"]);
  const Finished split = at.spillway(with(fp16(spilled("split")), {"--master-weights", "split"}));
  EXPECT_EQ(split.status, 2) << split.err;
  EXPECT_TRUE(mentions(split.err, "[--master-weights] expected fp32 with --precision fp16")) << split.err;
}

TEST_F(Training, ResumeRefusesOtherNumbers) {
  ASSERT_EQ(at.spillway(spilled("run", 3)).status, 0);
  Args other = spilled("run", 5);
  *(std::find(other.begin(), other.end(), "1e-3")) = "2e-3";
  const Finished f = at.spillway(other);
  EXPECT_EQ(f.status, 2);
  EXPECT_TRUE(mentions(f.err, "learning")) << f.err;
  EXPECT_EQ(at.metrics("run").size(), 3u);
  EXPECT_EQ(at.spillway(with(spilled("run", 5), {"--resume", "never"})).status, 2);
  EXPECT_EQ(at.spillway(with(spilled("empty", 5), {"--resume", "must"})).status, 4);
}

TEST_F(Training, RefusesWhatDoesNotFitBeforeWriting) {
  Args tight = spilled("run");
  *(std::find(tight.begin(), tight.end(), "16MiB")) = "1MiB";
  const Finished f = at.spillway(tight);
  EXPECT_EQ(f.status, 3);
  EXPECT_TRUE(mentions(f.err, "--device-memory")) << f.err;
  EXPECT_TRUE(mentions(f.err, "activations")) << f.err;
  EXPECT_FALSE(fs::exists(at / "run"));
  EXPECT_FALSE(fs::exists(at / "scratch"));
  Args host = spilled("run");
  *(std::find(host.begin(), host.end(), "64MiB")) = "1MiB";
  EXPECT_EQ(at.spillway(host).status, 3);
  Args disk = spilled("run");
  *(std::find(disk.begin(), disk.end(), "scratch")) = "scratch:1MiB";
  EXPECT_EQ(at.spillway(disk).status, 3);
  EXPECT_FALSE(fs::exists(at / "run"));
}

TEST_F(Training, NvmeWithoutAPathIsAUsageError) {
  const Finished f = at.spillway({"train", "--model", "gpt2-tiny", "--data", "text.txt", "--steps", "2", "--place-optimizer", "nvme"});
  EXPECT_EQ(f.status, 2);
  EXPECT_TRUE(mentions(f.err, "--nvme")) << f.err;
}

TEST_F(Training, CorruptCheckpointIsADataError) {
  ASSERT_EQ(at.spillway(spilled("run", 3)).status, 0);
  fs::resize_file(at / "run/checkpoints/step-00000003/optimizer.safetensors", 1000);
  const Finished f = at.spillway(spilled("run", 5));
  EXPECT_EQ(f.status, 4);
  EXPECT_TRUE(mentions(f.err, "optimizer.safetensors")) << f.err;
}

// Fills the disk during training: the save fails with a warning, the run continues, and the previous checkpoint stays.
TEST_F(Training, AFullDiskLosesNoCheckpoint) {
  fs::create_directory(at / "small");
  if (::mount("tmpfs", (at / "small").c_str(), "tmpfs", 0, "size=64m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  Args run = with(spilled("small/run", 40), {"--checkpoint-every", "2", "--keep", "1"});
  int filled = 0;
  const Finished f = at.spillway_until(
      run,
      [&] {
        if (at.metrics("small/run").size() >= 3 && !filled++) at.write("small/filler", std::string(50 << 20, 'x'));
        return false;
      },
      SIGKILL);
  EXPECT_EQ(f.status, 5) << f.err;
  EXPECT_TRUE(mentions(f.err, "full") || mentions(f.err, "No space")) << f.err;
  fs::remove(at / "small/filler");
  const Finished rest = at.spillway(run);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "continues at step")) << rest.err;
  ::umount((at / "small").c_str());
}

TEST_F(Training, ExportGivesTheSameBytesAndTrainsAgain) {
  const std::string model = test::data("llama-tiny").string();
  const Finished same = at.spillway({"export", model, "--out", "copy"});
  ASSERT_EQ(same.status, 0) << same.err;
  const Finished once_more = at.spillway({"export", "copy", "--out", "copy2"});
  ASSERT_EQ(once_more.status, 0) << once_more.err;
  EXPECT_TRUE(at.read("copy/model.safetensors") == at.read("copy2/model.safetensors"));
  EXPECT_TRUE(at.read("copy/config.json") == at.read("copy2/config.json"));

  at.write("digits.bin", [] {  // a token file in nanoGPT's format: uint16 tokens without a header
    std::string tokens;
    for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i * 7 % 97), '\0'};
    return tokens;
  }());
  const Finished trained = at.spillway({"train", "--model", "copy", "--data", "digits.bin", "--sequence-length", "24", "--steps", "5",
                                        "--out", "run", "--learning-rate", "1e-3"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Finished exported = at.spillway({"export", "run", "--out", "trained", "--max-shard-size", "40KB"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_TRUE(fs::exists(at / "trained/model.safetensors.index.json"));
  EXPECT_EQ(at.spillway({"export", "trained", "--out", "whole"}).status, 0);
  EXPECT_FALSE(at.read("whole/model.safetensors") == at.read("copy/model.safetensors"));
  EXPECT_EQ(at.spillway({"export", "run", "--out", "trained"}).status, 2) << "nothing is overwritten";
}

TEST_F(Training, GeneratesTheSameTextFromAnyTier) {
  ASSERT_EQ(at.spillway(spilled("run", 10)).status, 0);
  const Args base = {"generate", "--model", "run", "--prompt", "and the", "--max-tokens", "20", "--seed", "3"};
  const Finished device = at.spillway(base);
  ASSERT_EQ(device.status, 0) << device.err;
  EXPECT_EQ(device.out.rfind("and the", 0), 0u);
  EXPECT_GT(device.out.size(), 20u);
  const Finished nvme =
      at.spillway(with(base, {"--place-parameters", "nvme", "--nvme", "scratch", "--device-memory", "16MiB", "--host-memory", "64MiB"}));
  EXPECT_EQ(nvme.status, 0) << nvme.err;
  EXPECT_EQ(nvme.out, device.out);
}

TEST_F(Training, PlanTellsWithoutWriting) {
  Args plan = spilled("run");
  plan[0] = "plan";
  const Finished f = at.spillway(with(plan, {"--program"}));
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* what : {"weights", "optimizer state", "activations", "Fetch", "Backward", "Commit"})
    EXPECT_TRUE(mentions(f.out, what)) << what;
  EXPECT_FALSE(fs::exists(at / "run"));
  EXPECT_FALSE(fs::exists(at / "scratch"));
}

TEST_F(Training, AFolderInUseIsRefused) {
  bool checked = false;
  const Finished f = at.spillway_until(
      spilled("run", 100000),
      [&] {
        if (at.metrics("run").size() < 2) return false;
        Workplace other;
        other.write_text("text.txt", 60000);
        const Finished second = other.spillway(spilled((at / "run").string(), 100000));
        EXPECT_EQ(second.status, 2) << second.err;
        EXPECT_TRUE(mentions(second.err, "in use")) << second.err;
        checked = true;
        return true;
      },
      SIGTERM);
  EXPECT_TRUE(checked) << f.err;
  EXPECT_EQ(f.status, 75);
}

}  // namespace
}  // namespace spillway::test::train_test
