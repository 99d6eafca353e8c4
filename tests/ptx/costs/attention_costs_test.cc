// Holds the instructions of attention with masks on tensor cores to limits, in relation to those of plain causal attention for the same
// visible pairs of queries and keys, from counts of their PTX.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/sequence/attention.h"
#include "ptx/counters.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::test::attention_costs_test {
namespace {

struct Cost {
  double forward, backward;  // the instructions of all threads
};

class AttentionCosts : public GpuTest {
 protected:
  static constexpr i64 kHeads = 1, kWidth = 64, kPositions = 512, kDocument = 256;

  double instructions(const std::function<void()>& work) {
    ptx::count_anew();
    gpu().run(work);
    double sum = 0;
    for (const auto& [kernel, c] : ptx::counted()) sum += static_cast<double>(c.thread_instructions);
    return sum;
  }
  Cost cost(i64 batch, i64 positions, kernels::AttentionMask mask) {
    const Shape shape{batch, positions, kHeads, kWidth};
    const auto in = [&](u64 seed) { return gpu()(random(shape, DType::bf16, seed)); };
    const auto room = [&] { return gpu().empty(shape, DType::bf16); };
    const Tensor q = in(1), k = in(2), v = in(3), dout = in(4), out = room(), dq = room(), dk = room(), dv = room();
    const Tensor lse = gpu().empty({batch, kHeads, positions}, DType::f32);
    const auto workspace = [&](auto bytes_of) {
      return gpu().empty({gpu().run([&] { return bytes_of(shape, shape, DType::bf16, kernels::AttentionLibrary::own); })}, DType::uint8);
    };
    const Tensor forward = workspace(kernels::attention_workspace_bytes), backward = workspace(kernels::attention_gradient_workspace_bytes);
    mask.scale = 1 / std::sqrt(static_cast<double>(kWidth));
    return {instructions([&] { kernels::attention(q, k, v, mask, out, lse, forward); }),
            instructions([&] { kernels::attention_gradient(q, k, v, out, lse, dout, mask, dq, dk, dv, backward); })};
  }
};

// Documents cost what the same sequences cost in a batch, and a window that hides one key costs what plain attention costs, except for
// reading and comparing first keys. The limit leaves room for 0.1.
TEST_F(AttentionCosts, OfDocumentsAndWindows) {
  std::vector<i32> positions;
  for (i64 i = 0; i < kPositions; ++i) positions.push_back(static_cast<i32>(i % kDocument));
  kernels::AttentionMask documents, window;
  documents.positions_BT = gpu()(ints(positions, {1, kPositions}));
  window.window = kPositions - 1;
  const Cost packed = cost(1, kPositions, documents), apart = cost(kPositions / kDocument, kDocument, {});
  const Cost hidden = cost(1, kPositions, window), plain = cost(1, kPositions, {});
  EXPECT_LE(packed.forward, 1.1 * apart.forward);
  EXPECT_LE(packed.backward, 1.1 * apart.backward);
  EXPECT_LE(hidden.forward, 1.1 * plain.forward);
  EXPECT_LE(hidden.backward, 1.1 * plain.backward);
}

// A soft cap takes five instructions for each score, and its slope three or four in each of the two kernels of backward. For 1,024
// positions plain attention takes 15.5 for each pair of a query and a key in forward and 42.9 in backward, and a soft cap costs 1.40
// and 1.55 times that. For fewer positions, what does not depend on the pairs has a larger share of both.
TEST_F(AttentionCosts, OfSoftCaps) {
  kernels::AttentionMask mask;
  mask.softcap = 50;
  const Cost capped = cost(1, kPositions, mask), plain = cost(1, kPositions, {});
  EXPECT_LE(capped.forward, 1.4 * plain.forward);
  EXPECT_LE(capped.backward, 1.5 * plain.backward);
  EXPECT_GT(capped.forward, 1.1 * plain.forward);  // the limits above are ones that a kernel can break
}

}  // namespace
}  // namespace spillway::test::attention_costs_test
