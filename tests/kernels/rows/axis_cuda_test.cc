// Compares operations along an axis on a GPU with the CPU. Picked elements and sorted orders are bitwise equal to the CPU's.
// Sums over the axis are made in fp64 in another order, so they are only near.
#include "kernels/layout/pick.h"
#include "kernels/losses/class_loss.h"
#include "kernels/rows/best.h"
#include "kernels/rows/softmax.h"
#include "kernels/rows/spread.h"
#include "tests/support/gpu.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::axis_cuda_test {
namespace {

using kernels::Axis;
using kernels::Best;
using kernels::Softmax;

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
// Lists axes as long as a warp, as a block, and longer, along rows and along columns, and one of a single element.
const Axis kAxes[] = {{1, 1, 1}, {5, 33, 1}, {2, 70, 9}, {3, 1025, 1}, {1, 1100, 3}};

class AxisTwins : public test::GpuTest {
 protected:
  static Shape whole(const Axis& a) { return {a.outer, a.n, a.inner}; }
  static Shape lanes(const Axis& a) { return {a.outer, a.inner}; }

  // Runs `work` on both devices, with results shaped like `like`, and compares the results. If `exact` is true, they must be bitwise equal.
  template <class Work>
  void expect_twins(const std::vector<Tensor>& inputs, const std::vector<std::pair<Shape, DType>>& like, bool exact, Work work) {
    std::vector<Tensor> want, got, there;
    for (const auto& [shape, dtype] : like) want.push_back(zeros(shape, dtype)), got.push_back(gpu()(want.back()));
    work(inputs, want);
    for (const Tensor& input : inputs) there.push_back(gpu()(input));
    gpu().run([&] { work(there, got); });
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor host = gpu().host(got[i]);
      if (exact) {
        EXPECT_TRUE(test::same_bits(host, want[i])) << "result " << i;
      } else {  // exp and log are accurate to 2 ulp each, and terms are at most 8
        const DType dtype = want[i].dtype();
        test::expect_near(host, want[i], 2 * test::half_ulp(dtype) + 16 * test::half_ulp(wide_dtype(dtype)),
                          64 * test::half_ulp(wide_dtype(dtype)), "result " + std::to_string(i));
      }
    }
  }
};

TEST_F(AxisTwins, Softmax) {
  for (const Axis& axis : kAxes) {
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(to_string(whole(axis)) + " " + std::string(to_string(dtype)));
      const Tensor x = test::random(whole(axis), dtype, 1), dy = test::random(whole(axis), dtype, 2),
                   dlse = test::random(lanes(axis), dtype, 3);
      std::vector<std::pair<Shape, DType>> like(5, {whole(axis), dtype});
      like.push_back({lanes(axis), dtype}), like.push_back({{axis.outer, 2, axis.inner}, wide_dtype(dtype)});
      expect_twins({x, dy, dlse}, like, false, [&](const auto& in, const auto& out) {
        kernels::softmax_statistics(in[0], axis, out[6]);
        kernels::softmax(Softmax::plain, in[0], axis, out[6], out[0]);
        kernels::softmax(Softmax::logarithm, in[0], axis, out[6], out[1]);
        kernels::softmax_gradient(Softmax::plain, in[0], axis, out[6], in[1], out[2]);
        kernels::softmax_gradient(Softmax::logarithm, in[0], axis, out[6], in[1], out[3]);
        kernels::log_sum_exp_gradient(in[0], axis, out[6], in[2], out[4]);
        kernels::log_sum_exp(out[6], axis, out[5]);
      });
    }
  }
}

TEST_F(AxisTwins, Variances) {
  for (const Axis& axis : kAxes) {
    for (const DType dtype : kFloats) {
      const Tensor x = test::random(whole(axis), dtype, 1), dy = test::random(lanes(axis), dtype, 2);
      expect_twins({x, dy}, {{whole(axis), dtype}, {lanes(axis), dtype}, {lanes(axis), wide_dtype(dtype)}}, false,
                   [&](const auto& in, const auto& out) {
                     kernels::variance(in[0], axis, 0, out[2], out[1]);
                     kernels::variance_gradient(in[0], axis, 0, out[2], in[1], out[0]);
                   });
    }
  }
}

// Long lanes are added by a thread block, in another order than the CPU's: y may differ by the rounding of its dtype, and by that of at
// most n additions in fp64 of numbers that sum to at most n.
TEST_F(AxisTwins, RunningSums) {
  for (const Axis& axis : {Axis{5, 33, 1}, Axis{2, 70, 9}, Axis{1, 1024, 3}, Axis{3, 1025, 1}, Axis{2, 4100, 3}, Axis{1, 1100, 2048}}) {
    for (const DType dtype : kFloats) {
      for (const bool backwards : {false, true}) {
        SCOPED_TRACE(to_string(whole(axis)) + " " + std::string(to_string(dtype)));
        const Tensor x = test::random(whole(axis), dtype, 1), here = zeros(whole(axis), dtype), there = gpu()(here);
        kernels::running_sum(x, axis, backwards, here);
        gpu().run([&, on = gpu()(x)] { kernels::running_sum(on, axis, backwards, there); });
        const double n = static_cast<double>(axis.n);
        if (axis.n <= 1024 || axis.lanes() >= 2048) {
          EXPECT_TRUE(test::same_bits(gpu().host(there), here));
        } else {
          test::expect_near(gpu().host(there), here, 2 * test::half_ulp(dtype), n * n * 0x1p-53, "running sum");
        }
      }
    }
  }
}

// Writes the best elements and their places, with a workspace of the current device.
void best(Best which, const Tensor& x, const Axis& axis, i64 k, const std::vector<Tensor>& out) {
  kernels::best(which, x, axis, k, out[0], out[1], empty({kernels::best_workspace_bytes(axis, k, x.dtype())}, DType::uint8));
}

// Sorts inputs of only a few different values, so that many are equal, with infinities and NaN. The order must be the CPU's.
TEST_F(AxisTwins, TheBestInOrder) {
  const double inf = std::numeric_limits<double>::infinity(), values[] = {1, 2, 3, inf, -inf, std::numeric_limits<double>::quiet_NaN()};
  for (const Axis& axis : kAxes) {
    for (const DType dtype : kFloats) {
      for (const i64 kinds : {3, 6}) {
        const Tensor wide = test::random(whole(axis), DType::f64, 1);
        for (double& v : wide.span<double>()) v = values[static_cast<i64>(std::abs(v) * 1000) % kinds];
        const Tensor x = test::as(dtype, wide);
        for (const i64 k : {i64{1}, std::min<i64>(axis.n, 7)}) {
          for (const Best which : {Best::largest, Best::smallest}) {
            const Shape chosen{axis.outer, k, axis.inner};
            expect_twins({x}, {{chosen, dtype}, {chosen, DType::int32}}, true,
                         [&](const auto& in, const auto& out) { best(which, in[0], axis, k, out); });
          }
        }
      }
    }
  }
}

// Lanes of several tiles, of which few elements are wanted, as many as make runs that are merged, or all. Zeros of both signs are equal.
TEST_F(AxisTwins, TheBestOfLongLanes) {
  struct Case {
    Axis axis;
    i64 k;
  };
  for (const auto& [axis, k] : {Case{{2, 40, 1}, 40}, Case{{1, 9000, 2}, 3}, Case{{1, 9000, 1}, 600}, Case{{2, 4097, 1}, 4097},
                                Case{{1, 2049, 1}, 2048}, Case{{1, 9000, 1}, 40}}) {
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(to_string(whole(axis)) + " " + std::to_string(k) + " " + std::string(to_string(dtype)));
      const Tensor wide = test::random(whole(axis), DType::f64, 1);
      i64 at = 0;
      for (double& v : wide.span<double>()) {
        if (++at % 31 == 0) v = at % 2 == 0 ? -0.0 : 0.0;
        if (at % 997 == 0) v = std::numeric_limits<double>::quiet_NaN();
      }
      const Shape chosen{axis.outer, k, axis.inner};
      for (const Best which : {Best::largest, Best::smallest}) {
        expect_twins({test::as(dtype, wide)}, {{chosen, dtype}, {chosen, DType::int32}}, true,
                     [&](const auto& in, const auto& out) { best(which, in[0], axis, k, out); });
      }
    }
  }
}

TEST_F(AxisTwins, Picks) {
  for (const Axis& axis : kAxes) {
    for (const DType dtype : kFloats) {
      for (const bool each : {false, true}) {
        const i64 count = 11;
        const kernels::Picks picks = each ? kernels::picks_of_each(count, axis) : kernels::picks_of_all(count);
        std::vector<i32> places;
        for (i64 i = 0; i < count * (each ? axis.lanes() : 1); ++i) places.push_back(static_cast<i32>(i * i % axis.n));
        const Tensor index = test::ints(places, {static_cast<i64>(places.size())});
        const Shape picked{axis.outer, count, axis.inner};
        expect_twins({test::random(whole(axis), dtype, 1), index, test::random(picked, dtype, 2)},
                     {{picked, dtype}, {whole(axis), wide_dtype(dtype)}}, true, [&](const auto& in, const auto& out) {
                       kernels::gather(in[0], axis, in[1], picks, out[0]);
                       kernels::scatter_add(in[2], axis, in[1], picks, out[1]);
                     });
      }
    }
  }
}

// More indices than a thread block looks at together, of more elements than it adds to, and lanes enough for a thread each.
TEST_F(AxisTwins, ManyPicksOfLongLanes) {
  for (const Axis& axis : {Axis{2, 5000, 1}, Axis{1, 2049, 2}, Axis{1, 3, 2048}}) {
    for (const DType dtype : kFloats) {
      const i64 count = axis.n > 3 ? 2500 : 40;
      const kernels::Picks picks = kernels::picks_of_each(count, axis);
      std::vector<i32> places;
      for (i64 i = 0; i < count * axis.lanes(); ++i) places.push_back(static_cast<i32>(i * i % 4999 % axis.n));
      const Shape picked{axis.outer, count, axis.inner};
      expect_twins({test::ints(places, {static_cast<i64>(places.size())}), test::random(picked, dtype, 2)},
                   {{whole(axis), wide_dtype(dtype)}}, true,
                   [&](const auto& in, const auto& out) { kernels::scatter_add(in[1], axis, in[0], picks, out[0]); });
    }
  }
}

TEST_F(AxisTwins, ClassLosses) {
  for (const i64 columns : {5, 37, 1100}) {
    for (const DType dtype : kFloats) {
      const DType wide = wide_dtype(dtype);
      const Shape rows{9, columns};
      const Tensor x = test::random(rows, dtype, 1), weights = test::random({columns}, wide, 2), dlosses = test::random({9}, wide, 3);
      std::vector<i32> classes;
      for (i32 i = 0; i < 9; ++i) classes.push_back(i == 4 ? -1 : i * 7 % static_cast<i32>(columns));
      for (const bool weighted : {false, true}) {
        for (const bool logits : {false, true}) {
          for (const double smoothing : {0.0, 0.2}) {
            SCOPED_TRACE(std::to_string(columns) + " " + std::string(to_string(dtype)));
            // The terms of the sum over all classes have random weights and cancel, so errors are relative to the size of the terms.
            expect_twins({x, test::ints(classes, {9}), weighted ? weights : Tensor(), dlosses},
                         {{{9, 2, 1}, wide}, {{9}, wide}, {{9}, wide}, {rows, dtype}, {rows, dtype}}, false,
                         [&](const auto& in, const auto& out) {
                           const kernels::ClassLoss form{3, smoothing};
                           kernels::softmax_statistics(in[0], {9, columns, 1}, out[0]);
                           const Tensor statistics = logits ? out[0] : Tensor();
                           kernels::class_loss(in[0], in[1], in[2], form, statistics, out[1], out[2]);
                           kernels::class_loss_gradient(in[0], in[1], in[2], form, statistics, in[3], 0.5, out[3]);
                           kernels::class_loss_gradient(in[0], in[1], in[2], form, statistics, {}, 0.5, out[4]);
                         });
          }
        }
      }
    }
  }
}

// An index outside the axis is an error on the CPU. On a GPU it gives NaN in the result, and an error of the next wait.
TEST_F(AxisTwins, PlacesOutsideAreNotANumberAndAnErrorOfTheNextWait) {
  const Axis axis{1, 3, 2};
  const Tensor index = test::ints({0, 3, 1, -1}, {2, 2}), x = test::random({3, 2}, DType::f32, 1),
               from = test::random({2, 2}, DType::f32, 2);
  const Tensor out = gpu().empty({2, 2}, DType::f32), to = gpu()(zeros({3, 2}, DType::f32)), many = gpu()(zeros({3, 2048}, DType::f32));
  const Tensor there[] = {gpu()(x), gpu()(index), gpu()(from), gpu()(test::ints({5}, {1}))};
  const auto expect_fault = [&](const char* start, const auto& work) {
    gpu().run(work);
    EXPECT_TRUE(test::refusal([&] { gpu().host(out); }).starts_with(start)) << start;
  };
  expect_fault("[gather] expected an index in [0, 3), got ",
               [&] { kernels::gather(there[0], axis, there[1], kernels::picks_of_each(2, axis), out); });
  expect_fault("[scatter_add] expected an index in [0, 3), got ",
               [&] { kernels::scatter_add(there[2], axis, there[1], kernels::picks_of_each(2, axis), to); });
  expect_fault("[scatter_add] expected an index in [0, 3), got 5 ", [&] {  // a thread for each lane
    kernels::scatter_add(gpu()(zeros({1, 2048}, DType::f32)), {1, 3, 2048}, there[3], kernels::picks_of_all(1), many);
  });
  const Tensor got = gpu().host(out), sums = gpu().host(to);
  for (i64 i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(test::at(got, i)), i % 2 == 1) << i;
  for (i64 i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(test::at(sums, i)), i == 1) << i;

  const Tensor losses = gpu().empty({2}, DType::f32), counted = gpu().empty({2}, DType::f32), classes = gpu()(test::ints({0, 2}, {2}));
  expect_fault("[cross_entropy] expected an index in [0, 2), got 2 ", [&] {
    const kernels::ClassLoss form{-100, 0};
    kernels::class_loss(there[2], classes, {}, form, {}, losses, counted);
  });
  EXPECT_TRUE(std::isnan(test::at(gpu().host(losses), 1)));
}

}  // namespace
}  // namespace spillway::axis_cuda_test
