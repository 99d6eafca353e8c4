// Tests the program on a GPU as a user runs it: it trains, saves, resumes and evaluates. In a build with SPILLWAY_CUDA=EMULATED the GPU's
// code runs on the CPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "device/device_query.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::gpu_cuda_test {
namespace {

struct ProgramOnGpu : testing::Test {
  const Workplace at;
  void SetUp() override {
    ::setenv("SPILLWAY_EMULATED_GPUS", "1", 1);
    const GpuReport report = query_gpus();
    if (report.gpus.empty()) GTEST_SKIP() << report.problem;
    at.write_text("text.txt", 4000);
  }
  void TearDown() override { ::unsetenv("SPILLWAY_EMULATED_GPUS"); }

  Args training(const std::string& out, int steps, const Args& more = {}, const std::string& device = "cuda") const {
    Args args = {"train",
                 "--model",
                 "gpt2-tiny",
                 "--data",
                 "text.txt",
                 "--device",
                 device,
                 "--precision",
                 "fp32",
                 "--sequence-length",
                 "8",
                 "--device-memory",
                 "64MiB",
                 "--host-memory",
                 "64MiB",
                 "--out",
                 out,
                 "--steps",
                 std::to_string(steps),
                 "--warmup-steps",
                 "1",
                 "--lr-schedule",
                 "constant",
                 "--nvme",
                 "scratch"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

TEST_F(ProgramOnGpu, TrainsAndGoesOnWithTheSameNumbersFromAnyTier) {
  const Finished whole = at.spillway(training("whole", 4));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_TRUE(mentions(whole.err, "on cuda:0, ")) << whole.err;
  EXPECT_TRUE(mentions(at.read("whole/config.json"), "\"device\": \"cuda\""));
  const Args spilled = {"--place-parameters",  "host", "--place-gradients",  "host", "--place-optimizer", "nvme",
                        "--optimizer-overlap", "none", "--checkpoint-every", "1"};
  const Finished first = at.spillway(training("run", 2, spilled));
  ASSERT_EQ(first.status, 0) << first.err;
  const Finished second = at.spillway(training("run", 4));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(mentions(second.err, "continues at step 2 of 4")) << second.err;
  EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("whole")));
  EXPECT_TRUE(at.read("run/checkpoints/step-00000004/optimizer.safetensors") ==
              at.read("whole/checkpoints/step-00000004/optimizer.safetensors"));
  const Finished on_cpu = at.spillway(training("run", 6, {}, "cpu"));
  EXPECT_TRUE(on_cpu.status == 2 && mentions(on_cpu.err, "device: \"cuda\" -> \"cpu\"")) << on_cpu.err;
}

// A last bit of bf16 that differs may move a number to the next value of fp8, an eighth away at most, so losses are only near.
TEST_F(ProgramOnGpu, TrainsInFp8NearTheCpu) {
  const auto losses = [&](const std::string& device, const std::string& precision) {
    const Args args = with(with(training(device + precision, 3, {}, device), "--precision", precision), "--sequence-length", "16");
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, 0) << f.err;
    std::vector<double> all;
    for (const std::string& line : at.metrics(device + precision)) all.push_back(nlohmann::json::parse(line)["loss"]);
    return all;
  };
  const std::vector<double> gpu = losses("cuda", "fp8"), cpu = losses("cpu", "fp8"), plain = losses("cuda", "bf16");
  ASSERT_EQ(gpu.size(), 3u);
  for (size_t step = 0; step < 3; ++step) EXPECT_NEAR(gpu[step], cpu[step], 5e-3 * cpu[step]);
  EXPECT_NE(gpu[0], plain[0]);
  if (query_gpus().gpus[0].name != "emulated") return;
  ::setenv("SPILLWAY_EMULATED_CAPABILITY", "86", 1);
  const Finished f = at.spillway(with(training("ampere", 1), "--precision", "fp8"));
  ::unsetenv("SPILLWAY_EMULATED_CAPABILITY");
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "[--precision] expected a GPU with tensor cores for fp8") &&
              mentions(f.err, "with 8.6: give --precision bf16"))
      << f.err;
}

TEST_F(ProgramOnGpu, TrainsOnImagesNearTheCpu) {
  std::string images;
  for (int i = 0; i < 32; ++i) {
    images += static_cast<char>(i % 10);
    for (int p = 0; p < 3072; ++p) images += static_cast<char>(i * 37 + p * (i % 10 + 1));
  }
  at.write("images.bin", images);
  const auto run = [&](const std::string& device) {
    const Finished f = at.spillway({"train", "--model",         "cifar-net", "--data",        "images.bin", "--validation-fraction",
                                    "0.25",  "--device",        device,      "--precision",   "fp32",       "--micro-batch-size",
                                    "8",     "--device-memory", "64MiB",     "--host-memory", "64MiB",      "--steps",
                                    "2",     "--warmup-steps",  "0",         "--out",         device});
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(at.metrics(device).back());
  };
  const nlohmann::json gpu = run("cuda"), cpu = run("cpu");
  EXPECT_NEAR(gpu["loss"], cpu["loss"], 1e-5);
  EXPECT_NEAR(gpu["validation_loss"], cpu["validation_loss"], 1e-4);
  EXPECT_NEAR(gpu["validation_accuracy"], cpu["validation_accuracy"], 0.126) << "but for an image between two classes";
}

struct ProgramOnGpuMore : ProgramOnGpu {};

// The rows use only the 67 tokens that the model knows.
TEST_F(ProgramOnGpuMore, MixturesAdaptersAndPackedRowsAreNearTheCpu) {
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += "{\"text\": \"" + std::to_string(i) + " 12 34 " + std::to_string(i * i) + "\"}\n";
  at.write("rows.jsonl", rows);
  const auto run = [&](const std::string& device, const Args& more) {
    Args args = {"train",       "--model", SPILLWAY_TEST_DATA "/qwen3-moe-tiny", "--data", "rows.jsonl", "--packing", "on",
                 "--tokenizer", "bytes"};
    const Args rest = {"--device",          device,  "--precision",     "fp32",
                       "--sequence-length", "32",    "--device-memory", "64MiB",
                       "--host-memory",     "64MiB", "--steps",         "2",
                       "--warmup-steps",    "0",     "--out",           device + std::to_string(more.size())};
    args.insert(args.end(), rest.begin(), rest.end());
    args.insert(args.end(), more.begin(), more.end());
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(at.metrics(device + std::to_string(more.size())).back());
  };
  for (const Args& more : {Args{}, Args{"--lora", "4", "--base-weights", "nf4"}}) {
    const nlohmann::json gpu = run("cuda", more), cpu = run("cpu", more);
    EXPECT_NEAR(gpu["loss"], cpu["loss"], 1e-5);
    EXPECT_NEAR(gpu["grad_norm"], cpu["grad_norm"], 1e-4);
  }
}

TEST_F(ProgramOnGpu, EvaluatesAndGeneratesNearTheCpu) {
  ASSERT_EQ(at.spillway(training("run", 1)).status, 0);
  at.write_text("short.txt", 400);
  const auto evaluate = [&](const std::string& device) {
    const Finished f = at.spillway({"evaluate", "--model", "run", "--data", "short.txt", "--sequence-length", "128", "--device", device,
                                    "--precision", "fp32", "--device-memory", "64MiB"});
    EXPECT_EQ(f.status, 0) << f.err;
    return std::stod(f.out.substr(f.out.find("loss ") + 5));
  };
  const double on_cpu = evaluate("cpu");
  EXPECT_NEAR(evaluate("cuda"), on_cpu, 1e-4 * on_cpu);
  const Finished text = at.spillway({"generate", "--model", "run", "--prompt", "the ", "--max-tokens", "4", "--temperature", "0",
                                     "--device", "cuda", "--precision", "fp32", "--device-memory", "64MiB"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out.substr(0, 4), "the ");
}

TEST_F(ProgramOnGpu, MoreThanItsMemoryIsRefused) {
  const Finished f = at.spillway(training("run", 1, {}, "cuda:7"));
  EXPECT_EQ(f.status, 2);
  const Finished large =
      at.spillway({"train", "--model", "gpt2-tiny", "--data", "text.txt", "--device", "cuda", "--device-memory", "900TiB"});
  EXPECT_EQ(large.status, 3) << large.err;
  EXPECT_TRUE(mentions(large.err, "--device-memory of at most")) << large.err;
}

TEST_F(ProgramOnGpu, NcclWhereItCannotBeIsOneLine) {
  const auto refused = [&](const Args& args, const std::string& says) {
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_TRUE(mentions(f.err, "[--communicator] expected GPUs that can communicate over NCCL") && mentions(f.err, says)) << f.err;
  };
  const Args two = {"--ranks", "2", "--communicator", "nccl"};
  refused(training("run", 1, two, "cpu"), "give --device cuda");
  const Args plan = {"plan",   "--model",       "gpt2-tiny", "--data",         "text.txt", "--sequence-length",
                     "8",      "--ranks",       "4",         "--device",       "cuda",     "--device-memory",
                     "128MiB", "--host-memory", "64MiB",     "--communicator", "nccl"};
  const Finished planned = at.spillway(plan);
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_TRUE(mentions(planned.out, "between GPUs  ")) << planned.out;
}

TEST_F(ProgramOnGpu, SaysHowMuchHostMemoryIsPageLocked) {
  if (query_gpus().gpus[0].name != "emulated") GTEST_SKIP() << "needs emulated GPUs, whose memory takes long to be locked";
  ::setenv("SPILLWAY_EMULATED_REGISTER_MS", "1500", 1);  // delays the page-locking of each of five pieces by 1.5 s
  const Finished f =
      at.spillway(training("run", 1, {"--place-parameters", "host", "--place-gradients", "host", "--place-optimizer", "host"}));
  ::unsetenv("SPILLWAY_EMULATED_REGISTER_MS");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "page-locking host memory, ")) << f.err;
}

TEST_F(ProgramOnGpu, DoctorLooksAtPeers) {
  ::setenv("SPILLWAY_EMULATED_GPUS", "2", 1);
  const size_t gpus = query_gpus().gpus.size();
  EXPECT_EQ(mentions(at.spillway({"doctor"}).out, "pairs of GPUs reach each other"), gpus > 1);
  if (query_gpus().gpus[0].name != "emulated") return;
  ::setenv("SPILLWAY_EMULATED_PEERS", "lost", 1);
  const Finished doctor = at.spillway({"doctor"});
  EXPECT_TRUE(mentions(doctor.out, "copies lose data from cuda:0 to cuda:1")) << doctor.out;
  // Emulated GPUs of different processes cannot use NCCL. The run tries NCCL, which fails, and then uses host memory.
  const Finished trained = at.spillway(training("run", 1, {"--ranks", "2", "--timeout", "10s"}));
  ::unsetenv("SPILLWAY_EMULATED_PEERS");
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(mentions(trained.err, "Spillway sets NCCL_P2P_DISABLE=1")) << trained.err;
  EXPECT_TRUE(mentions(trained.err, "GPUs communicate through host memory: ")) << trained.err;
}

}  // namespace
}  // namespace spillway::test::gpu_cuda_test
