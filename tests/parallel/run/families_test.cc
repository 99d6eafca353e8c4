// The models of tests/data/families compute the same bits wherever their data lie and whichever ranks compute them: on nvme, recomputed,
// with spilled activations, with weights and state divided among two ranks, and in two pipeline stages. What a family passes from block to
// block beside the residual, parameters that blocks share and parameters that are never trained take part.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/model.h"
#include "models/weights.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/fixtures.h"

namespace spillway::test::families_test {
namespace {

using parallel::Tier;

RunOptions options_of(const std::string& folder) {
  static std::map<std::string, std::pair<nn::Sequential, std::unique_ptr<models::FolderWeights>>> all;
  auto& [model, weights] = all[folder];
  RunOptions o;
  o.model = models::read_config(test::data(folder));
  if (!weights) {
    model = models::build(o.model, DType::f32);
    weights = std::make_unique<models::FolderWeights>(model, test::data(folder));
  }
  o.weights = [source = weights.get()](const nn::Parameter& p, i64 begin, std::span<double> out) { source->read(p, begin, out); };
  o.sequence_length = 23;
  o.micro_batches = 2;
  return o;
}

const std::vector<Way>& ways() {
  static const auto rests_on_nvme = [](RunOptions& o) { o.parameters = o.gradients = o.optimizer = Tier::nvme; };
  static const std::vector<Way> all = {
      {"nvme_recomputed", [](RunOptions& o) { rests_on_nvme(o), o.recompute = true; }},
      {"nvme_spilled", [](RunOptions& o) { rests_on_nvme(o), o.activations = Tier::nvme; }},
      {"zero3", [](RunOptions& o) { o.ranks = 2, o.zero_stage = 3, o.micro_batches = 1; }},
      {"zero3_nvme", [](RunOptions& o) { rests_on_nvme(o), o.ranks = 2, o.zero_stage = 3, o.micro_batches = 1; }},
      {"two_stages", [](RunOptions& o) { o.pipeline.ranks = 2; }},
  };
  return all;
}

class Families : public testing::TestWithParam<std::tuple<std::string, size_t>> {};

TEST_P(Families, AreTheSameBitsAnywhere) {
  const auto& [folder, way] = GetParam();
  static std::map<std::string, RunResult> kept;
  if (!kept.contains(folder)) kept[folder] = train(options_of(folder));
  RunOptions o = options_of(folder);
  ways()[way].change(o);
  expect_same_run(train(o), kept.at(folder));
}

// This tests bf16 and fp16, where gradients of parameters are f32 and all else is narrow. The losses lie near those in fp32: they follow
// from logits of about their size, which have been rounded to bf16, by 2^-8 of themselves at most, in a few layers one after the other.
class FamiliesInHalves : public testing::TestWithParam<std::string> {};

TEST_P(FamiliesInHalves, AreTheSameBitsOnNvmeAndNearFp32) {
  const RunResult wide = train(options_of(GetParam()));
  const auto expect_near = [&](const RunResult& narrow, size_t steps) {
    for (size_t step = 0; step < steps; ++step) EXPECT_NEAR(narrow.losses[step], wide.losses[step], 5 * 0x1p-8 * wide.losses[step]);
  };
  RunOptions o = options_of(GetParam());
  o.dtype = DType::bf16;
  const RunResult bf16 = train(o);
  expect_near(bf16, wide.losses.size());
  ways().front().change(o);
  expect_same_run(train(o), bf16);
  RunOptions f16 = options_of(GetParam());
  f16.dtype = DType::f16;
  expect_near(train(f16), 1);  // gradients of these weights may overflow, and then a step is skipped
}

INSTANTIATE_TEST_SUITE_P(Folders, FamiliesInHalves, testing::ValuesIn(family_folders()), [](const auto& entry) {
  std::string name = entry.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
});

INSTANTIATE_TEST_SUITE_P(Folders, Families, testing::Combine(testing::ValuesIn(family_folders()), testing::Range<size_t>(0, ways().size())),
                         [](const auto& entry) {
                           std::string name = std::get<0>(entry.param) + "_" + ways()[std::get<1>(entry.param)].name;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '/'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace spillway::test::families_test
