// Tests that Muon's orthogonalization with a GPU's matrix products agrees with plain loops, and uses only the memory that it asks for.
#include "optim/matrices/orthogonalize.h"

#include "base/random.h"
#include "tests/optim/support_newton_schulz.h"
#include "tests/support/gpu.h"

namespace spillway::optim::orthogonalize_cuda_test {
namespace {

using test::Extents;

class OrthogonalizeOnGpu : public test::GpuTest {
 protected:
  // Orthogonalizes a random matrix, stores the matrix in `given`, and checks that memory around the workspace is untouched.
  template <class T>
  std::vector<T> result(Extents e, std::vector<double>& given) {
    const DType dtype = sizeof(T) == 8 ? DType::f64 : DType::f32;
    std::vector<T> matrix(static_cast<size_t>(round_up(e.elems(), kTileElems)));
    for (i64 i = 0; i < e.elems(); ++i)
      matrix[static_cast<size_t>(i)] = static_cast<T>(uniform(RandomKey{5}, 0, static_cast<u64>(i)) - 0.4);
    given.assign(matrix.begin(), matrix.begin() + e.elems());
    const i64 bytes = orthogonalize_bytes(e.rows, e.columns, dtype, Device::Kind::cuda);
    const std::vector<u8> full(static_cast<size_t>(bytes + kGuard), kFull);
    const Tensor there = gpu()(tensor_of<u8>(full, {std::ssize(full)}));
    gpu().run([&] { orthogonalize_on_gpu(reinterpret_cast<std::byte*>(matrix.data()), e.rows, e.columns, dtype, there.raw()); });
    const Tensor after = gpu().host(there);
    EXPECT_EQ(std::count(after.data<u8>() + bytes, after.data<u8>() + after.elems(), kFull), kGuard);
    return matrix;
  }

 private:
  static constexpr i64 kGuard = 4096;
  static constexpr u8 kFull = 0x5a;
};

// Compares with plain loops. The error bounds are derived in the CPU's test (muon_test.cc).
TEST_F(OrthogonalizeOnGpu, IsTheIteration) {
  for (const Extents e : {Extents{1, 1}, Extents{1, 300}, Extents{33, 300}, Extents{300, 33}, Extents{128, 128}, Extents{132, 528}}) {
    std::vector<double> given, same;
    const std::vector<double> wide = result<double>(e, given);
    const std::vector<float> narrow = result<float>(e, same);
    const std::vector<double> want = test::newton_schulz(given, e);
    for (size_t i = 0; i < wide.size(); ++i) {
      ASSERT_NEAR(wide[i], i < want.size() ? want[i] : 0, 1e-11) << e.rows << " x " << e.columns << ", " << i;
      ASSERT_NEAR(narrow[i], i < want.size() ? want[i] : 0, 1e-4) << e.rows << " x " << e.columns << ", " << i;
    }
  }
}

}  // namespace
}  // namespace spillway::optim::orthogonalize_cuda_test
