// Tests Muon on one matrix: each step of PyTorch's trajectories, computed entirely in f32 and entirely in f64, and Muon's
// orthogonalization against plain loops.
#include "optim/rules/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "device/stream.h"
#include "optim/matrices/orthogonalize.h"
#include "optim/rules/settings.h"
#include "optim/rules/tile.h"
#include "tests/optim/support_newton_schulz.h"
#include "tests/optim/support_reference.h"

namespace spillway::optim::muon_test {
namespace {

using test::Extents;

// Holds a matrix smaller than a tile, with its optimizer state.
template <class T>
class Matrix {
 public:
  Matrix(Extents extents, const std::vector<T>& init) : extents_(extents), weight_(kTileElems), state_(kTileElems), gradient_(kTileElems) {
    std::copy(init.begin(), init.end(), weight_.begin());
    format_.rule = Rule::muon;
  }

  void step(const MuonSettings& settings, i64 t, std::span<const T> gradient) {
    std::copy(gradient.begin(), gradient.end(), gradient_.begin());
    Scalars<double> scalars = make_scalars(settings, t, 1);
    scalars.step_size *= matrix_scale(settings, extents_.rows, extents_.columns);
    const DType dtype = format_.weight;
    std::vector<std::byte> memory(static_cast<size_t>(orthogonalize_bytes(extents_.rows, extents_.columns, dtype)));
    direction_tile(format_, bytes(gradient_), bytes(state_), extents_.elems(), scalars, settings.nesterov,
                   reinterpret_cast<T*>(memory.data()));
    const std::byte* direction = orthogonalize(memory.data(), extents_.rows, extents_.columns, dtype);
    const std::vector<TilePart> parts{{extents_.elems(), &scalars}, {kTileElems, nullptr}};
    update_tile(format_, {bytes(gradient_), bytes(weight_), bytes(state_), bytes(weight_), bytes(state_), direction}, parts, {});
  }

  const std::vector<T>& weight() const { return weight_; }

 private:
  static std::byte* bytes(std::vector<T>& values) { return reinterpret_cast<std::byte*>(values.data()); }

  const Extents extents_;
  StateFormat format_ = plain_format(sizeof(T) == 8 ? DType::f64 : DType::f32);
  std::vector<T> weight_, state_, gradient_;
};

struct Trajectory {
  const char* file;
  MuonSettings settings;
};

// Each trajectory's hyper-parameters are those in the metadata of its reference file.
const Trajectory kTrajectories[] = {
    {"muon", {.lr = 0.02, .scale = MuonScale::original}},
    {"muon_match_rms", {.lr = 0.003}},
    {"muon_plain", {.lr = 0.02, .momentum = 0.9, .weight_decay = 0, .nesterov = false, .scale = MuonScale::original}},
};

// Returns the largest difference of any weight from the reference file's, over all matrices and steps.
template <class T>
double distance(const char* file, const MuonSettings& settings) {
  constexpr Extents kExtents[] = {{3, 5}, {6, 4}, {4, 4}, {1, 6}};
  const test::Reference reference(std::string(file) + ".safetensors");
  double worst = 0;
  for (size_t p = 0; p < std::size(kExtents); ++p) {
    const std::string name = "p" + std::to_string(p);
    const auto gradients = reference.get<T>(name + "/grads"),
               after = reference.get<T>(name + (sizeof(T) == 4 ? "/f32" : "/f64") + "/after");
    const auto n = static_cast<size_t>(kExtents[p].elems());
    EXPECT_EQ(after.size(), 20 * n);
    Matrix<T> matrix(kExtents[p], reference.get<T>(name + "/init"));
    for (size_t t = 0; t < 20; ++t) {
      matrix.step(settings, static_cast<i64>(t) + 1, std::span(gradients).subspan(t * n, n));
      for (size_t i = 0; i < n; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(matrix.weight()[i]) - static_cast<double>(after[t * n + i])));
    }
  }
  return worst;
}

class MuonTrajectories : public testing::TestWithParam<Trajectory> {};

// The reference file's f32 and f64 values differ by 0.3e-6 to 1.3e-6, since the iteration magnifies rounding errors of small singular
// values. The test therefore allows two f32 results to differ by twice as much. In f64 rounding errors are 2^29 times smaller.
TEST_P(MuonTrajectories, FollowsPyTorchF32) { EXPECT_LT(distance<float>(GetParam().file, GetParam().settings), 3e-6); }
TEST_P(MuonTrajectories, FollowsPyTorchF64) { EXPECT_LT(distance<double>(GetParam().file, GetParam().settings), 3e-6 / (1 << 29)); }

TEST_P(MuonTrajectories, AWrongSettingWouldBeSeen) {
  const auto& [file, right] = GetParam();
  const auto seen = [&, &file = file](const MuonSettings& wrong) { return distance<double>(file, wrong) > 1e-9; };
  for (const auto member : {&MuonSettings::lr, &MuonSettings::momentum, &MuonSettings::weight_decay}) {
    MuonSettings wrong = right;
    wrong.*member *= 1.0001;
    EXPECT_TRUE(right.*member == 0 || seen(wrong));
  }
  MuonSettings wrong = right;
  wrong.nesterov = !wrong.nesterov;
  EXPECT_TRUE(seen(wrong));
  wrong = right;
  wrong.scale = right.scale == MuonScale::original ? MuonScale::match_rms_adamw : MuonScale::original;
  EXPECT_TRUE(seen(wrong));
}

INSTANTIATE_TEST_SUITE_P(Muon, MuonTrajectories, testing::ValuesIn(kTrajectories), [](const auto& one) { return one.param.file; });

// Orthogonalizes a random matrix in workspace of exactly the size that orthogonalize_bytes() asks for, between guard bytes.
template <class T>
struct Memory {
  static constexpr size_t kGuard = 64;
  Memory(Extents e, i64 threads) : extents(e), bytes(static_cast<size_t>(orthogonalize_bytes(e.rows, e.columns, dtype())) + 2 * kGuard) {
    std::ranges::fill(bytes, std::byte{0x5a});
    begin = bytes.data() + kGuard - reinterpret_cast<std::uintptr_t>(bytes.data()) % kGuard;
    T* x = reinterpret_cast<T*>(begin);
    std::fill_n(x, round_up(e.elems(), kTileElems), T(0));
    for (i64 i = 0; i < e.elems(); ++i) x[i] = static_cast<T>(uniform(RandomKey{5}, 0, static_cast<u64>(i)) - 0.4);
    given.assign(x, x + e.elems());
    ThreadPool pool(static_cast<int>(threads));
    const Stream stream{Device::cpu(), &pool, Stream::current().memory};
    const StreamScope scope(stream);
    const T* y = reinterpret_cast<const T*>(orthogonalize(begin, e.rows, e.columns, dtype()));
    result.assign(y, y + round_up(e.elems(), kTileElems));
  }
  static DType dtype() { return sizeof(T) == 8 ? DType::f64 : DType::f32; }
  bool guards_hold() const {
    const auto is_guard = [](std::byte b) { return b == std::byte{0x5a}; };
    const i64 used = orthogonalize_bytes(extents.rows, extents.columns, dtype());
    return std::all_of(bytes.begin(), bytes.begin() + (begin - bytes.data()), is_guard) &&
           std::all_of(bytes.begin() + (begin - bytes.data()) + used, bytes.end(), is_guard);
  }

  Extents extents;
  std::vector<std::byte> bytes;
  std::byte* begin;
  std::vector<T> given, result;
};

class Orthogonalize : public testing::TestWithParam<Extents> {};

// The iteration is compared with plain loops. It is a polynomial of products with up to 300 terms
// and has some hundred rounding errors, magnified by slopes of up to 3.4 in each of five steps.
TEST_P(Orthogonalize, IsTheIteration) {
  const Extents e = GetParam();
  const Memory<double> wide(e, 1);
  const Memory<float> narrow(e, 1);
  EXPECT_TRUE(wide.guards_hold() && narrow.guards_hold());
  const std::vector<double> want = test::newton_schulz(wide.given, e);
  for (size_t i = 0; i < wide.result.size(); ++i) {
    ASSERT_NEAR(wide.result[i], i < want.size() ? want[i] : 0, 1e-11) << i;
    ASSERT_NEAR(narrow.result[i], i < want.size() ? want[i] : 0, 1e-4) << i;
  }
}

TEST_P(Orthogonalize, ThreadsChangeNoBit) {
  const Memory<float> one(GetParam(), 1);
  for (const i64 threads : {2, 3}) EXPECT_EQ(Memory<float>(GetParam(), threads).result, one.result);
}

// Tests the purpose of the iteration: jordan's polynomial brings singular values of
// at least 1e-2 of the norm to [0.68, 1.13], so that rows have about unit length.
TEST_P(Orthogonalize, BringsRowsToLengthOne) {
  const Extents e = GetParam();
  const Memory<double> m(e, 1);
  double squares = 0;
  for (const double x : m.result) squares += x * x;
  const auto shorter = static_cast<double>(std::min(e.rows, e.columns));
  EXPECT_LT(squares, 1.3 * shorter);
  EXPECT_GT(squares, 0.4 * shorter);
}

INSTANTIATE_TEST_SUITE_P(Matrices, Orthogonalize,
                         testing::Values(Extents{1, 1}, Extents{1, 300}, Extents{300, 1}, Extents{33, 300}, Extents{300, 33},
                                         Extents{128, 128}),
                         [](const auto& one) { return std::to_string(one.param.rows) + "x" + std::to_string(one.param.columns); });

TEST(OrthogonalizeZero, StaysZero) {
  std::vector<std::byte> memory(static_cast<size_t>(orthogonalize_bytes(8, 5, DType::f32)));
  const auto* result = reinterpret_cast<const float*>(orthogonalize(memory.data(), 8, 5, DType::f32));
  EXPECT_TRUE(std::all_of(result, result + kTileElems, [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace spillway::optim::muon_test
