// Whole models in bf16: weights, activations and their gradients bf16; logits, loss and weight gradients f32. Two references: the same
// model in fp64 on the very weights that bf16 holds, where only the rounding of activations is left, and PyTorch's fp32 run, where that of
// the weights comes on top. Rounding noise is 2^-9 a value at random; through two blocks it comes to about one percent of a gradient, so
// gradients are compared as vectors: |got - want| against |want|.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "models/export.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"

namespace spillway {
namespace {

using test::as_doubles;
using test::Eager;
using test::Reference;

double norm(const std::vector<double>& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return std::sqrt(squares);
}

// |got - want| / |want|.
double distance(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size() || got.empty()) return INFINITY;
  std::vector<double> difference(got.size());
  for (size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - want[i];
  return norm(difference) / norm(want);
}

// The weights of `from`, widened.
void copy_weights(const Eager& from, const Eager& to) {
  for (size_t i = 0; i < from.model.parameters.size(); ++i) {
    const Tensor wide = test::as(DType::f64, from.model.parameters[i]->value());
    std::ranges::copy(wide.span<double>(), to.model.parameters[i]->value().span<double>().begin());
  }
}

class Bf16Model : public ::testing::TestWithParam<const char*> {
 protected:
  Reference reference{GetParam(), DType::f32};
  Eager narrow_one{GetParam(), DType::bf16};
  MicroBatch batch = reference.batch("input_ids", "labels");
  double counted = static_cast<double>(batch.counted_targets);
};

// Measured: logits 0.015 of values up to 3, gradients 0.013 (0.018 against PyTorch, whose weights are not rounded).
TEST_P(Bf16Model, AgainstFp64OnTheSameWeights) {
  Eager wide(GetParam(), DType::f64);
  copy_weights(narrow_one, wide);
  for (const i64 t : {i64{0}, i64{7}, batch.tokens_BT.size(1) - 1}) {
    const auto got = narrow_one.logits(batch, t), want = wide.logits(batch, t);
    EXPECT_LE(test::worst_excess(got, want, 0.02, 0x1p-7), 0) << "position " << t;
    EXPECT_GT(test::worst_excess(got, want, 1e-6, 0), 0) << "planted: this is not fp32";
  }
  EXPECT_NEAR(narrow_one.backward(batch, 1 / counted) / counted, wide.backward(batch, 1 / counted) / counted, 1e-3);
  for (const auto& p : narrow_one.model.parameters) {
    const Tensor gradient = narrow_one.weights.gradient(p->id);
    EXPECT_EQ(gradient.dtype(), DType::f32) << p->name;
    EXPECT_LE(distance(as_doubles(gradient), wide.gradient(p->name)), 0.03) << p->name;
  }
}

TEST_P(Bf16Model, AgainstPyTorchsFp32Run) {
  const i64 B = batch.tokens_BT.size(0), T = batch.tokens_BT.size(1), V = narrow_one.config.vocabulary;
  const std::vector<double> want = reference.values("logits");
  for (i64 t = 0; t < T; ++t) {
    std::vector<double> want_BV;
    for (i64 b = 0; b < B; ++b) want_BV.insert(want_BV.end(), want.begin() + (b * T + t) * V, want.begin() + (b * T + t + 1) * V);
    ASSERT_LE(test::worst_excess(narrow_one.logits(batch, t), want_BV, 0.03, 0x1p-7), 0) << "position " << t;
  }
  EXPECT_NEAR(narrow_one.backward(batch, 1 / counted) / counted, reference.value("loss"), 2e-3);
  for (const auto& p : narrow_one.model.parameters) {
    EXPECT_LE(distance(narrow_one.gradient(p->name), reference.values("grad/" + p->name)), 0.04) << p->name;
  }
}

// A step of plain descent on an f32 master whose rounding is the weight, as a trainer does it: the loss falls as it does in fp64 (measured:
// 0.005 apart after 15 steps; longer or larger ones make any two runs part).
TEST_P(Bf16Model, LearnsAsFp64Does) {
  Eager wide(GetParam(), DType::f64);
  copy_weights(narrow_one, wide);
  std::vector<std::vector<double>> master;
  for (const auto& p : narrow_one.model.parameters) master.push_back(as_doubles(test::as(DType::f64, p->value())));
  const double first = narrow_one.backward(batch, 1 / counted) / counted;
  double last = 0, want = 0;
  for (int step = 0; step < 15; ++step) {
    narrow_one.weights.forget();
    wide.weights.forget();
    last = narrow_one.backward(batch, 1 / counted) / counted;
    want = wide.backward(batch, 1 / counted) / counted;
    for (size_t i = 0; i < master.size(); ++i) {
      const auto gradient = as_doubles(narrow_one.weights.gradient(static_cast<u32>(i)));
      const auto exact = as_doubles(wide.weights.gradient(static_cast<u32>(i)));
      const auto rounded = narrow_one.model.parameters[i]->value().span<BFloat16>();
      const auto kept = wide.model.parameters[i]->value().span<double>();
      for (size_t n = 0; n < rounded.size(); ++n) {
        master[i][n] -= 0.02 * gradient[n];
        rounded[n] = narrow<BFloat16>(static_cast<float>(master[i][n]));
        kept[n] -= 0.02 * exact[n];
      }
    }
  }
  EXPECT_LT(last, first - 0.5);
  EXPECT_NEAR(last, want, 0.02);
}

TEST_P(Bf16Model, ThreadsChangeNoBit) {
  const auto run = [&](int threads) {
    std::vector<double> all;
    test::with_threads(threads, [&] {
      narrow_one.weights.forget();
      all.push_back(narrow_one.backward(batch, 1 / counted));
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

// An exported bf16 folder gives the bits that loading the fp32 one gives.
TEST_P(Bf16Model, ReadsWhatItExports) {
  const auto folder = std::filesystem::temp_directory_path() / ("spillway-bf16-" + std::string(GetParam()));
  std::filesystem::create_directories(folder);
  models::export_folder(narrow_one.config, test::data(GetParam()), folder, "bf16", kGiB);
  const nn::Sequential again = models::build(narrow_one.config, DType::bf16);
  const nn::EagerParameters weights(again);
  const models::FolderWeights source(again, folder);
  models::fill(again, source);
  for (size_t i = 0; i < again.parameters.size(); ++i) {
    EXPECT_EQ(source.stored_dtype(*again.parameters[i]), DType::bf16);
    EXPECT_TRUE(test::same_bits(again.parameters[i]->value(), narrow_one.model.parameters[i]->value())) << again.parameters[i]->name;
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16Model, ::testing::Values("gpt2-tiny", "llama-tiny", "llama3rope-tiny"), [](const auto& entry) {
  std::string name = entry.param;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace spillway
