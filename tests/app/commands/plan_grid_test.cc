// Over models, budgets and clusters: no plan that is printed beside the chosen one is a better choice.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"

namespace spillway::app::plan_grid_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Empty: none is more than 2 % faster, and none that takes as long writes less to nvme.
std::string better_than_chosen(const Json& plan) {
  const double seconds = plan["predicted_step_s"];
  const i64 written_bytes = plan["written_bytes_per_step"]["nvme"];
  std::string better;
  for (const Json& one : plan["alternatives"]) {
    const double other_s = one["predicted_step_s"];
    const i64 other_bytes = one["nvme_written_bytes_per_step"];
    if (other_s < 0.98 * seconds || (other_s <= seconds && other_bytes < written_bytes))
      better += fmt::format("  {}: {} s and {} bytes written, chosen {} s and {} bytes\n", one["flag"].get<std::string>(), other_s,
                            other_bytes, seconds, written_bytes);
  }
  return better;
}

// What does not fit is no plan.
std::string faults_of(const Words& words) {
  Words args = {"plan", "--threads", "1", "--json"};
  args.insert(args.end(), words.begin(), words.end());
  const Outcome outcome = run_app(args);
  if (outcome.status == 3) return "";
  EXPECT_EQ(outcome.status, 0) << fmt::format("{}\n", fmt::join(args, " ")) << outcome.err;
  if (outcome.status != 0) return "";
  const std::string better = better_than_chosen(Json::parse(outcome.out));
  return better.empty() ? "" : fmt::format("{}\n{}", fmt::join(args, " "), better);
}

std::string faults_of_grid(const Words& models, const Words& clusters, const std::vector<Words>& batches) {
  std::string faults;
  for (const std::string& model : models) {
    for (const std::string& cluster : clusters) {
      for (const Words& batch : batches) {
        Words words = {"--model", model, "--cluster", cluster, "--precision", "bf16"};
        words.insert(words.end(), batch.begin(), batch.end());
        faults += faults_of(words);
      }
    }
  }
  return faults;
}

const Words kSmallBatch = {"--micro-batch-size", "1", "--sequence-length", "1024"},
            kLargeBatch = {"--micro-batch-size", "4", "--gradient-accumulation-steps", "4", "--sequence-length", "512"};

TEST(PlanGridRelease, NoAlternativeOfAClusterBeatsTheChosenPlan) {
  const Words clusters = {"1x1xA-24GB,64GiB,nvme=2TB", "1x1xA-4GB,16GiB,nvme=1TB", "1x2xA-8GB,64GiB,nvme=2TB", "2x8xA-80GiB,1TiB,nvme=7TB"};
  EXPECT_EQ(faults_of_grid({"gpt2-124m"}, clusters, {kSmallBatch, kLargeBatch}), "");
  EXPECT_EQ(faults_of_grid({"llama3-1b"}, clusters, {kSmallBatch}), "");
}

// The plan that wrote 13 TiB a day where a faster one wrote none.
TEST(PlanGridRelease, NoAlternativeOfEightBillionWeightsOnOneCardBeatsTheChosenPlan) {
  const Words clusters = {"1x1xA-24GB,64GiB,nvme=2TB", "1x1xA-24GB,128GiB,nvme=4TB"};
  EXPECT_EQ(faults_of_grid({"llama3-8b"}, clusters, {kSmallBatch}), "");
}

TEST(PlanGridRelease, NoAlternativeOnACpuBeatsTheChosenPlan) {
  std::string faults;
  for (const char* device : {"24MiB", "64MiB"}) {
    for (const char* host : {"32MiB", "256MiB"})
      faults += faults_of({"--model", "gpt2-tiny", "--device", "cpu", "--device-memory", device, "--host-memory", host, "--nvme",
                           TemporaryFolder().path().string() + ":1GiB", "--sequence-length", "64"});
  }
  EXPECT_EQ(faults, "");
}

TEST(SoakPlanGrid, NoAlternativeBeatsTheChosenPlan) {
  const Words models = {"gpt2-355m", "gpt2-1.5b", "llama3-1b", "llama3-8b", "qwen2.5-7b", "llama3-70b"};
  const Words clusters = {"1x1xA-8GB,32GiB,nvme=1TB",   "1x1xA-24GB,64GiB,nvme=2TB", "1x1xA-24GB,128GiB,nvme=4TB",
                          "1x2xA-24GB,128GiB,nvme=2TB", "1x8xA-80GiB,1TiB,nvme=7TB", "2x8xA-40GiB,512GiB",
                          "16x8xA-80GiB,2TiB,nvme=14TB"};
  const Words stages = {
      "--micro-batch-size", "1", "--sequence-length", "1024", "--pipeline-stages", "2", "--gradient-accumulation-steps", "8"};
  EXPECT_EQ(faults_of_grid(models, clusters, {kSmallBatch, kLargeBatch, stages}), "");
}

}  // namespace
}  // namespace spillway::app::plan_grid_test
