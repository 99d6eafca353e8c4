// Compares ten AdamW steps with PyTorch and transformers. Losses, gradient norms and final weights of the fixtures are compared in fp32
// and fp64, through the same Rank that trains everything else, with everything on the device and with everything on nvme.
#include <gtest/gtest.h>

#include <cmath>

#include "data/safetensors/safetensors.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/fixtures.h"

namespace spillway::test::fixture_training_test {
namespace {

using parallel::Tier;

// Returns all values of a tensor in the reference file, widened to double.
std::vector<double> values(const data::SafetensorsReader& file, const std::string& name) {
  const data::TensorInfo* info = file.find(name);
  if (!info) throw std::runtime_error("no tensor " + name);
  std::vector<std::byte> bytes(static_cast<size_t>(info->bytes()));
  file.read(*info, 0, bytes);
  std::vector<double> out(static_cast<size_t>(info->shape.elems()));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (info->dtype) {
      case DType::f64:
        out[i] = reinterpret_cast<const double*>(bytes.data())[i];
        break;
      case DType::f32:
        out[i] = reinterpret_cast<const float*>(bytes.data())[i];
        break;
      default:
        out[i] = static_cast<double>(reinterpret_cast<const i64*>(bytes.data())[i]);
    }
  }
  return out;
}

struct Tolerance {
  double relative;  // relative tolerance for losses and norms
  double weight;    // absolute tolerance for a weight after ten steps
};

class Fixture : public testing::TestWithParam<std::tuple<std::string, DType, Tier>> {
 protected:
  const std::string name = std::get<0>(GetParam());
  const DType dtype = std::get<1>(GetParam());
  const Tier tier = std::get<2>(GetParam());
  const data::SafetensorsReader reference{test::data(name) / (dtype == DType::f64 ? "reference_f64.safetensors" : "reference.safetensors")};

  StepBatch batch(i64 step) const {
    const data::TensorInfo* info = reference.find("train/input_ids");
    const i64 B = info->shape[1], T = info->shape[2];
    const std::vector<double> ids = values(reference, "train/input_ids");
    MicroBatch m{empty({B, T}, DType::int32), empty({B, T}, DType::int32), empty({B, T}, DType::int32)};
    for (i64 i = 0; i < B * T; ++i) {
      const bool last = i % T == T - 1;
      m.tokens_BT.data<i32>()[i] = static_cast<i32>(ids[static_cast<size_t>(step * B * T + i)]);
      m.targets_BT.data<i32>()[i] = last ? kIgnoredTarget : static_cast<i32>(ids[static_cast<size_t>(step * B * T + i + 1)]);
      m.positions_BT.data<i32>()[i] = static_cast<i32>(i % T);
    }
    StepBatch b;
    b.counted_targets = m.counted_targets = B * (T - 1);
    b.micro_batches.push_back(std::move(m));
    return b;
  }

  RunResult ten_steps(const nn::Sequential& names) const {
    const models::FolderWeights weights(names, test::data(name));
    const data::TensorInfo* info = reference.find("train/input_ids");
    RunOptions o;
    o.model = models::read_config(test::data(name));
    o.dtype = dtype;
    o.parameters = o.gradients = o.optimizer = tier;
    o.steps = 10;
    if (name.starts_with("families/")) std::get<optim::AdamSettings>(o.update).eps = 1e-6;  // as in tests/data/families/make.py
    o.micro_batch_size = info->shape[1];
    o.sequence_length = info->shape[2];
    o.batches = [this](i64 step, int) { return batch(step); };
    o.weights = [&](const nn::Parameter& p, i64 begin, std::span<double> out) { weights.read(p, begin, out); };
    return train(o);
  }
};

// Returns true for values that are not compared: GPT-2's key bias has gradient zero in exact
// arithmetic, so Adam divides rounding noise by its own size there (see the fixtures' README).
bool is_noise(const std::string& parameter, size_t i, size_t size) {
  return parameter.find("c_attn.bias") != std::string::npos && i >= size / 3 && i < 2 * size / 3;
}

TEST_P(Fixture, TenStepsAgree) {
  // In fp32 the bound allows for another summation order. In fp64 1e-10 covers ten steps of rounding errors, which Adam's division
  // amplifies.
  const Tolerance tolerance = dtype == DType::f64 ? Tolerance{1e-10, 1e-8} : Tolerance{2e-5, 5e-5};
  const nn::Sequential names = models::build(models::read_config(test::data(name)), dtype);
  const RunResult got = ten_steps(names);
  const std::vector<double> losses = values(reference, "train/loss"), norms = values(reference, "train/grad_norm");
  ASSERT_EQ(losses.size(), 10u);
  for (size_t s = 0; s < losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], losses[s], tolerance.relative * std::abs(losses[s])) << "loss of step " << s;
    EXPECT_NEAR(got.norms[s], norms[s], tolerance.relative * std::abs(norms[s])) << "norm of step " << s;
  }
  for (const auto& p : names.parameters) {
    if (p->frozen) continue;
    const std::vector<double> want = values(reference, "train/final/" + p->name);
    ASSERT_EQ(got.weights[p->id].size(), want.size()) << p->name;
    for (size_t i = 0; i < want.size(); ++i) {
      if (is_noise(p->name, i, want.size())) continue;
      ASSERT_NEAR(got.weights[p->id][i], want[i], tolerance.weight) << p->name << " element " << i;
    }
  }
}

std::string cell_name(const testing::TestParamInfo<Fixture::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::string(to_string(std::get<1>(info.param))) + "_" +
                     std::string(to_string(std::get<2>(info.param)));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Fixture,
                         testing::Combine(testing::Values("gpt2-tiny", "llama-tiny", "llama3rope-tiny"),
                                          testing::Values(DType::f32, DType::f64), testing::Values(Tier::device, Tier::nvme)),
                         cell_name);
INSTANTIATE_TEST_SUITE_P(Families, Fixture,
                         testing::Combine(testing::Values("mistral-tiny", "mistral-window-tiny", "qwen2-tiny", "qwen3-tiny", "gemma2-tiny",
                                                          "gemma3-text-tiny", "phi3-tiny", "phi3-partial-tiny", "olmo2-tiny",
                                                          "qwen3-moe-tiny", "mixtral-tiny"),
                                          testing::Values(DType::f32, DType::f64), testing::Values(Tier::nvme)),
                         cell_name);
INSTANTIATE_TEST_SUITE_P(Folders, Fixture,
                         testing::Combine(testing::ValuesIn(family_folders()), testing::Values(DType::f64),
                                          testing::Values(Tier::device, Tier::nvme)),
                         cell_name);

}  // namespace
}  // namespace spillway::test::fixture_training_test
