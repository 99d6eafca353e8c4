// Tests plans for machines that are not here: what --cluster says about them, and that this machine has no part in it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"
#include "trainer/node/calibration.h"

namespace spillway::app::cluster_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Outcome on_cluster(const std::string& spec, const Words& more = {}) {
  Words args = {"plan", "--cluster", spec, "--model", "gpt2-124m", "--sequence-length", "128"};
  args.insert(args.end(), more.begin(), more.end());
  return run_app(args);
}

Json json_on(const std::string& spec, Words more = {}) {
  more.push_back("--json");
  const Outcome outcome = on_cluster(spec, more);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(PlanForACluster, BudgetsAreARanksShare) {
  const Json all = json_on("2x8xH100-80GiB,1TiB,nvme=7TB");
  EXPECT_EQ(all["ranks"], 16);
  EXPECT_GT(all["budget_bytes"]["device"], 77 * kGiB);
  EXPECT_LT(all["budget_bytes"]["device"], 80 * kGiB);
  EXPECT_EQ(all["budget_bytes"]["host"], 128 * kGiB);
  EXPECT_EQ(all["budget_bytes"]["nvme"], 7'000'000'000'000 / 8);
  EXPECT_EQ(all["command"], "srun --nodes=2 --ntasks-per-node=8 spillway train --model gpt2-124m --sequence-length 128 --data PATH");
}

// A machine with a cache of measured rates, and one with other rates and other cores, must give the same bytes, in JSON and as text.
TEST(PlanForACluster, TheMachineThatAsksHasNoPartInIt) {
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  const TemporaryFolder folder;
  const auto planned = [&](double rate, const Words& more) {
    ::setenv("XDG_CACHE_HOME", (folder.path() / std::to_string(rate)).c_str(), 1);
    std::vector<BenchRow> rows;
    for (const char* name : {"memory.axpy", "memory.copy", "communicator.reduce-scatter", "communicator.all-gather", "gpu.copy",
                             "link.to-gpu", "link.from-gpu"})
      rows.push_back({.name = name, .path = "", .value = rate, .unit = "bytes/s", .ceiling = {}});
    for (const char* name : {"matmul.f32", "matmul.bf16", "gpu.matmul-f32", "gpu.matmul-bf16"})
      rows.push_back({.name = name, .path = "", .value = rate, .unit = "FLOP/s", .ceiling = {}});
    for (const char* name : {"disk.read", "disk.write", "disk.mixed"})
      rows.push_back({.name = name, .path = std::filesystem::current_path().string(), .value = rate, .unit = "bytes/s", .ceiling = {}});
    save_bench_rows(rows);
    EXPECT_EQ(load_calibration().matmul_flops_f32, rate) << "the cache is read";
    const Outcome outcome = on_cluster("1x2xRTX3090-2GiB,3GiB,nvme=1TB", more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  for (const Words& more : {Words{"--json"}, Words{}, Words{"--communicator", "mpi"}, Words{"--optimizer", "muon"}})
    EXPECT_EQ(planned(1e9, more), planned(1e12, more));
  before ? ::setenv("XDG_CACHE_HOME", kept.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

TEST(PlanForACluster, ASlowerCardTakesLonger) {
  const auto seconds = [](const char* spec) { return json_on(spec)["predicted_step_s"].get<double>(); };
  EXPECT_GT(seconds("1x1xRTX3060,64GiB"), 3 * seconds("1x1xRTX4090,64GiB"));
  EXPECT_GT(seconds("1x1xRTX4090,64GiB"), 2 * seconds("1x1xH100,64GiB"));
}

TEST(PlanForACluster, SaysWhatIsTheVendorsAndWhatIsAssumed) {
  const Json cluster = json_on("2x4xA100-40GiB,256GiB,nvme=7TB,cores=64")["cluster"];
  EXPECT_EQ(cluster["card"]["name"], "A100");
  EXPECT_EQ(cluster["card"]["source"], "NVIDIA A100 data sheet");
  EXPECT_EQ(cluster["card"]["flops_per_s"], 312e12);
  EXPECT_EQ(cluster["card"]["memory_bytes_per_s"], 1555e9);
  EXPECT_EQ(cluster["card"]["nvlink_bytes_per_s"], 300e9);
  EXPECT_EQ(cluster["assumed_shares"]["products"], 0.72);
  EXPECT_EQ(cluster["cores_per_gpu"], 16);
  EXPECT_EQ(cluster["assumed"], Json({"memory-rate", "nvme-read", "nvme-write", "network"}));
  const std::string text = on_cluster("2x4xA100-40GiB,256GiB,nvme=7TB,cores=64").out;
  for (const char* piece : {"NVIDIA A100 data sheet", "312 TFLOP/s dense in bf16", "1555 GB/s of GPU memory",
                            "given: 16 cores for each GPU", "25 GB/s between a GPU and other nodes"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in " << text;
  EXPECT_NE(on_cluster("1x1xT4,64GiB").out.find("no tensor cores (fp16: 65)"), std::string::npos);
}

TEST(PlanForACluster, OneNodeStartsItsRanksItself) {
  const Outcome outcome = on_cluster("1x4xA100-40GiB,256GiB");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("for 1 node, each with 4 x A100 of 40.0 GiB GPU memory, 256.0 GiB of host memory: 4 ranks; "),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find(" --ranks 4 --data PATH"), std::string::npos) << outcome.out;
}

TEST(PlanForACluster, WhatDoesNotFitIsRefused) {
  const Outcome outcome = on_cluster("1x1xT4-1GiB,1GiB", {"--place-activations", "device", "--micro-batch-size", "64"});
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.err;
}

TEST(PlanForACluster, BadWordsAreRefusedWithWhatWasExpected) {
  for (const auto& [spec, why] : {std::pair("2x8", "needs a comma"),
                                  {"2xH100-80GiB,1TiB", "is not NODESxGPUSxCARD"},
                                  {"0x8xH100-80GiB,1TiB", "\"0\" is not a number of nodes"},
                                  {"2x-1xH100-80GiB,1TiB", "is not a number of GPUs of a node"},
                                  {"2x8x-80GiB,1TiB", "no name"},
                                  {"2x8xH100-80GiB,", "is not a size for the memory of a node"},
                                  {"2x8xH100-80GiB,1TiB,7TB", "\"7TB\" is not nvme=SIZE"},
                                  {"2x8xH100-80GiB,1TiB,nvme=7", "\"7\" is not a size for nvme"},
                                  {"2x8xH100-80GiB,1TiB,nvme=7TB,x", "\"x\" is not nvme=SIZE"},
                                  {"2x8xH100-80GiB,1TiB,cores=0", "\"0\" is not a number of cores"},
                                  {"2x8xH100-80GiB,1TiB,nvme=7TB,nvme=7TB", "nvme is there twice"},
                                  {"2x8xH100-256MiB,1TiB", "more than 512MiB"},
                                  {"2x1xcpu-64GiB,1TiB", "--device cpu and --ranks"}}) {
    const Outcome outcome = on_cluster(spec);
    EXPECT_EQ(outcome.status, 2) << spec;
    EXPECT_NE(outcome.err.find("2x8xH100-80GiB,1TiB,nvme=7TB"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  }
  EXPECT_NE(on_cluster("2x8xH100-80GiB,1TiB", {"--ranks", "4"}).err.find("[--cluster] expected no --ranks"), std::string::npos);
  const Outcome unknown = on_cluster("2x8xH10-80GiB,1TiB");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("expected a GPU of the table, got \"H10\": did you mean H100?"), std::string::npos) << unknown.err;
}

// Planning again with the flag of an alternative must give that alternative's bytes. Nothing is measured, so every plan has the same rates.
TEST(PlanForACluster, AnAlternativeIsThePlanWithItsFlag) {
  const std::string spec = "1x1xRTX3060-2GiB,2GiB,nvme=1TB";
  const Json all = json_on(spec, {"--place-optimizer", "nvme"});  // stored, since a range-for over json()["..."] would not keep it alive
  int flags = 0;
  for (const Json& one : all["alternatives"]) {
    const std::string flag = one["flag"];
    const size_t space = flag.find(' ');
    const std::string name = flag.substr(0, space), value = flag.substr(space + 1);
    if (name == "--device-memory" || name == "--host-memory" || name == "--place-optimizer") continue;  // the command sets these already
    const Json with_flag = json_on(spec, {"--place-optimizer", "nvme", name, value});
    EXPECT_EQ(with_flag["total_bytes"], one["total_bytes"]) << flag;
    EXPECT_EQ(with_flag["predicted_step_s"], one["predicted_step_s"]) << flag;
    ++flags;
  }
  EXPECT_GE(flags, 2);
}

}  // namespace
}  // namespace spillway::app::cluster_test
