// Compares documents packed into rows with PyTorch: the loss of every token,
// and the sums and gradients of the references in tests/data/packing.
#include <gtest/gtest.h>

#include <cmath>

#include "data/safetensors/safetensors.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"

namespace spillway::packing_test {
namespace {

struct Case {
  const char* model;
  DType dtype;
};

class Packed : public ::testing::TestWithParam<Case> {
 protected:
  Packed()
      : file(test::data("packing") / (std::string(GetParam().model) + (GetParam().dtype == DType::f64 ? "_f64" : "") + ".safetensors")) {
    batch.tokens_BT = ints("input_ids"), batch.targets_BT = ints("targets"), batch.positions_BT = ints("position_ids");
    batch.packed = true;
    for (const i32 target : batch.targets_BT.span<i32>()) batch.counted_targets += target >= 0;
  }
  std::vector<double> values(const std::string& name) const {
    const data::TensorInfo& info = *file.find(name);
    std::vector<double> all(static_cast<size_t>(info.shape.elems()));
    file.read_wide(info, 0, all);
    return all;
  }
  Tensor ints(const std::string& name) const {
    const data::TensorInfo& info = *file.find(name);
    std::vector<i64> wide(static_cast<size_t>(info.shape.elems()));
    file.read(info, 0, std::as_writable_bytes(std::span(wide)));
    const Tensor narrow = empty(info.shape, DType::int32);
    for (size_t i = 0; i < wide.size(); ++i) narrow.span<i32>()[i] = static_cast<i32>(wide[i]);
    return narrow;
  }

  const data::SafetensorsReader file;
  MicroBatch batch;
  test::Eager eager{GetParam().model, GetParam().dtype};
  const double near = GetParam().dtype == DType::f64 ? 1e-12 : 1e-6;
};

TEST_P(Packed, LossAndGradientsArePyTorchs) {
  const auto counted = static_cast<double>(batch.counted_targets);
  const double want = values("loss")[0];
  EXPECT_NEAR(eager.backward(batch, 1 / counted) / counted, want, 10 * near);
  double squares = 0;
  int compared = 0;
  for (const auto& p : eager.model.parameters) {
    const std::vector<double> got = eager.gradient(p->name);
    for (const double g : got) squares += g * g;
    if (!file.find("grad/" + p->name)) continue;
    ++compared;
    EXPECT_LE(test::worst_excess(got, values("grad/" + p->name), near, 0), 0) << p->name;
  }
  EXPECT_GE(compared, 1);
  EXPECT_NEAR(std::sqrt(squares), values("grad_norm")[0], 20 * near);
  batch.packed = false;
  EXPECT_GT(std::abs(eager.backward(batch, 1 / counted) / counted - want), 1e-4) << "planted: attention that crosses borders shows";
}

TEST_P(Packed, LogitsAreThoseOfEachDocumentAlone) {
  const std::vector<double> want = values("logits");
  const i64 B = batch.tokens_BT.size(0), T = batch.tokens_BT.size(1), V = eager.config.vocabulary;
  const double allowed = GetParam().dtype == DType::f64 ? 1e-12 : 1e-5;
  const Tensor segments = ints("segment_ids");
  for (i64 t = 0; t < T; ++t) {
    const std::vector<double> got = eager.logits(batch, t);
    for (i64 b = 0; b < B; ++b) {
      if (segments.span<i32>()[static_cast<size_t>(b * T + t)] < 0) continue;  // positions of padding are not compared
      for (i64 v = 0; v < V; ++v)
        ASSERT_NEAR(got[static_cast<size_t>(b * V + v)], want[static_cast<size_t>((b * T + t) * V + v)], allowed) << b << " " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Packed,
                         ::testing::Values(Case{"gpt2-tiny", DType::f32}, Case{"gpt2-tiny", DType::f64}, Case{"llama-tiny", DType::f32},
                                           Case{"llama-tiny", DType::f64}, Case{"mistral-window-tiny", DType::f32},
                                           Case{"mistral-window-tiny", DType::f64}),
                         [](const auto& entry) {
                           std::string name = std::string(entry.param.model) + "_" + std::string(to_string(entry.param.dtype));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace spillway::packing_test
