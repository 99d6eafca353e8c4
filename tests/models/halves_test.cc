// Tests whole models in bf16 and fp16: weights, activations and their gradients have that type; logits, loss and weight gradients are
// f32. One reference is the same model in fp64 with the very same weights, from which only the rounding of activations differs. The
// other is PyTorch's fp32 run, from which the rounding of weights differs as well. bf16 has random rounding errors of 2^-9 per value,
// which two blocks turn into about one percent of a gradient. Gradients are therefore compared as vectors: |got - want| against
// |want|. fp16 has an eighth of that error, under a loss scale; without a loss scale, gradients below 2^-24 would become zero.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "models/export/folder.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::halves_test {
namespace {

using test::as_doubles;
using test::Eager;
using test::Reference;

double norm(const std::vector<double>& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return std::sqrt(squares);
}

// Returns the relative distance of two vectors, |got - want| / |want|.
double distance(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size() || got.empty()) return INFINITY;
  std::vector<double> difference(got.size());
  for (size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - want[i];
  return norm(difference) / norm(want);
}

// Copies the weights of model `from`, widened to fp64, to model `to`.
void copy_weights(const Eager& from, const Eager& to) {
  for (size_t i = 0; i < from.model.parameters.size(); ++i) {
    const Tensor wide = test::as(DType::f64, from.model.parameters[i]->value());
    std::ranges::copy(wide.span<double>(), to.model.parameters[i]->value().span<double>().begin());
  }
}

class HalfModel : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  // Runs a backward and returns the mean loss. The gradients are those of the mean loss times `scale`.
  double backward() { return narrow_one.backward(batch, scale / counted) / counted; }

  const char* const name = std::get<0>(GetParam());
  const DType narrow_type = std::get<1>(GetParam());
  const bool fp16 = narrow_type == DType::f16;
  const double part = fp16 ? 1.0 / 8 : 1;  // factor of the tolerances, which are those of bf16
  const double scale = fp16 ? 4096 : 1;
  Reference reference{name, DType::f32};
  Eager narrow_one{name, narrow_type};
  MicroBatch batch = reference.batch("input_ids", "labels");
  double counted = static_cast<double>(batch.counted_targets);
};

// The measured errors are 0.015 for logits (of values up to 3) and 0.013 for gradients (0.018 against PyTorch's unrounded weights).
TEST_P(HalfModel, AgainstFp64OnTheSameWeights) {
  Eager wide(name, DType::f64);
  copy_weights(narrow_one, wide);
  for (const i64 t : {i64{0}, i64{7}, batch.tokens_BT.size(1) - 1}) {
    const auto got = narrow_one.logits(batch, t), want = wide.logits(batch, t);
    EXPECT_LE(test::worst_excess(got, want, 0.02 * part, 0x1p-7 * part), 0) << "position " << t;
    EXPECT_GT(test::worst_excess(got, want, 1e-6, 0), 0) << "planted: this is not fp32";
  }
  EXPECT_NEAR(backward(), wide.backward(batch, scale / counted) / counted, 1e-3 * part);
  for (const auto& p : narrow_one.model.parameters) {
    const Tensor gradient = narrow_one.weights.gradient(p->id);
    EXPECT_EQ(gradient.dtype(), DType::f32) << p->name;
    EXPECT_LE(distance(as_doubles(gradient), wide.gradient(p->name)), 0.03 * part) << p->name;
  }
}

TEST_P(HalfModel, AgainstPyTorchsFp32Run) {
  const i64 B = batch.tokens_BT.size(0), T = batch.tokens_BT.size(1), V = narrow_one.config.vocabulary;
  const std::vector<double> want = reference.values("logits");
  for (i64 t = 0; t < T; ++t) {
    std::vector<double> want_BV;
    for (i64 b = 0; b < B; ++b) want_BV.insert(want_BV.end(), want.begin() + (b * T + t) * V, want.begin() + (b * T + t + 1) * V);
    ASSERT_LE(test::worst_excess(narrow_one.logits(batch, t), want_BV, 0.03 * part, 0x1p-7 * part), 0) << "position " << t;
  }
  EXPECT_NEAR(backward(), reference.value("loss"), 2e-3 * part);
  for (const auto& p : narrow_one.model.parameters) {
    std::vector<double> gradient = reference.values("grad/" + p->name);
    for (double& x : gradient) x *= scale;
    EXPECT_LE(distance(narrow_one.gradient(p->name), gradient), 0.04 * part) << p->name;
  }
}

// Makes steps of gradient descent on an f32 master, whose rounded value is the weight, as a trainer does. The
// loss falls as in fp64. (Measured: 0.005 apart after 15 steps; with more or larger steps any two runs diverge.)
TEST_P(HalfModel, LearnsAsFp64Does) {
  Eager wide(name, DType::f64);
  copy_weights(narrow_one, wide);
  std::vector<std::vector<double>> master;
  for (const auto& p : narrow_one.model.parameters) master.push_back(as_doubles(test::as(DType::f64, p->value())));
  const double first = backward();
  double last = 0, want = 0;
  for (int step = 0; step < 15; ++step) {
    narrow_one.weights.forget();
    wide.weights.forget();
    last = backward();
    want = wide.backward(batch, 1 / counted) / counted;
    for (size_t i = 0; i < master.size(); ++i) {
      const auto gradient = as_doubles(narrow_one.weights.gradient(static_cast<u32>(i)));
      const auto exact = as_doubles(wide.weights.gradient(static_cast<u32>(i)));
      const Tensor rounded = narrow_one.model.parameters[i]->value();
      const auto kept = wide.model.parameters[i]->value().span<double>();
      for (size_t n = 0; n < kept.size(); ++n) {
        master[i][n] -= 0.02 * gradient[n] / scale;
        const auto x = static_cast<float>(master[i][n]);
        if (fp16)
          rounded.data<Float16>()[n] = narrow<Float16>(x);
        else
          rounded.data<BFloat16>()[n] = narrow<BFloat16>(x);
        kept[n] -= 0.02 * exact[n];
      }
    }
  }
  EXPECT_LT(last, first - 0.5);
  EXPECT_NEAR(last, want, 0.02 * part);
}

TEST_P(HalfModel, ThreadsChangeNoBit) {
  const auto run = [&](int threads) {
    std::vector<double> all;
    test::with_threads(threads, [&] {
      narrow_one.weights.forget();
      all.push_back(backward());
      for (const auto& p : narrow_one.model.parameters) {
        const auto gradient = narrow_one.gradient(p->name);
        all.insert(all.end(), gradient.begin(), gradient.end());
      }
    });
    return all;
  };
  const auto alone = run(1);
  EXPECT_EQ(run(2), alone);
  EXPECT_EQ(run(3), alone);
}

// Exporting a model and loading the exported folder gives bitwise the weights that loading the original fp32 folder gives.
TEST_P(HalfModel, ReadsWhatItExports) {
  const test::TemporaryFolder temporary;
  const auto& folder = temporary.path();
  models::export_folder({narrow_one.config, test::data(name)}, folder, fp16 ? "fp16" : "bf16", kGiB);
  const nn::Sequential again = models::build(narrow_one.config, narrow_type);
  const nn::EagerParameters weights(again);
  const models::FolderWeights source(again, folder);
  models::fill(again, source);
  for (size_t i = 0; i < again.parameters.size(); ++i) {
    EXPECT_EQ(source.stored_dtype(*again.parameters[i]), narrow_type);
    EXPECT_TRUE(test::same_bits(again.parameters[i]->value(), narrow_one.model.parameters[i]->value())) << again.parameters[i]->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HalfModel,
                         ::testing::Combine(::testing::Values("gpt2-tiny", "llama-tiny", "llama3rope-tiny"),
                                            ::testing::Values(DType::bf16, DType::f16)),
                         [](const auto& entry) {
                           std::string name = std::get<0>(entry.param);
                           std::erase(name, '-');
                           return name + "_" + std::string(to_string(std::get<1>(entry.param)));
                         });

}  // namespace
}  // namespace spillway::halves_test
