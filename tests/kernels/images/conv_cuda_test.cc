// Compares convolution on a GPU with its definition in fp64 and with the CPU implementation. In
// a build with SPILLWAY_CUDA=EMULATED the GPU's code and cuBLASLt's products run on the CPU.
#include "kernels/images/conv_strips.h"
#include "tests/kernels/images/support_conv.h"
#include "tests/support/gpu.h"

namespace spillway::conv_cuda_test {
namespace {

using kernels::ConvShape;

// Returns the error of one addition. Tensor cores (bf16, f16) truncate instead of rounding (Fasi et al., PeerJ Comp. Science 7:e330, 2021).
double error_of_an_addition(DType dtype) { return is_half(dtype) ? 0x1p-23 : test::half_ulp(dtype); }

// Holds sums in fp64, with the sums of magnitudes and the numbers of terms, which bound the error of sums in another order.
struct Sums {
  Tensor sum, size, terms;
  explicit Sums(const Shape& shape) : sum(zeros(shape, DType::f64)), size(zeros(shape, DType::f64)), terms(zeros(shape, DType::f64)) {}
  void add(i64 i, double term) {
    sum.data<double>()[i] += term;
    size.data<double>()[i] += std::abs(term);
    terms.data<double>()[i] += 1;
  }
  // Expects `got` within the error bound: in any order each addition errs by at
  // most `eps` of the sum of magnitudes, and a narrow result is rounded once more.
  void expect(const Tensor& got, double eps, const char* what) const {
    for (i64 i = 0; i < sum.elems(); ++i) {
      const double stored = test::stored_error(got.dtype(), test::at(sum, i));
      ASSERT_NEAR(test::at(got, i), test::at(sum, i), 1.01 * (test::at(terms, i) + 2) * eps * test::at(size, i) + stored)
          << what << " at element " << i;
    }
  }
};

struct Results {
  Tensor y, dx, dw, narrow_dw;  // the results; narrow_dw is defined for bf16 and f16 only
};

class ConvTwins : public test::GpuTest {
 protected:
  // Returns a tensor of NaN in host memory. If a kernel does not write an element, the comparison then fails.
  static Tensor spoilt(const Shape& shape, DType dtype) {
    const Tensor t = empty(shape, dtype);
    std::memset(t.raw(), 0xff, static_cast<size_t>(t.bytes()));
    return t;
  }
  // Returns workspace on the current stream's GPU that begins with NaN, where the kernels store their matrices.
  static Tensor workspace(i64 bytes) {
    const Tensor t = empty({bytes}, DType::uint8);
    const auto spoilt_bytes = static_cast<size_t>(std::min(bytes, kMiB / 4));
    cuda_check(cudaMemsetAsync(t.raw(), 0xff, spoilt_bytes, Stream::current().queue), "cudaMemsetAsync");
    return t;
  }

  // Computes the convolution and its gradients on the GPU and returns them in host memory.
  Results convolve(const ConvShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& dy, const Tensor& dx_bias = {}) {
    const test::ConvShapes shapes(s);
    const DType dtype = x.dtype();
    const Tensor gx = gpu()(x), gw = gpu()(w), gbias = gpu()(bias), gdy = gpu()(dy), gdx_bias = gpu()(dx_bias);
    const Results r{gpu()(spoilt(shapes.y, dtype)), gpu()(spoilt(shapes.x, dtype)), gpu()(spoilt(shapes.w, wide_dtype(dtype))),
                    is_half(dtype) ? gpu()(spoilt(shapes.w, dtype)) : Tensor()};
    gpu().run([&] {
      kernels::conv2d(s, gx, gw, gbias, r.y, workspace(kernels::conv2d_workspace_bytes(s, dtype)));
      kernels::conv2d_input_gradient(s, gdy, gw, gdx_bias, r.dx, workspace(kernels::conv2d_input_gradient_workspace_bytes(s, dtype)));
      for (const Tensor& dw : {r.dw, r.narrow_dw}) {
        if (!dw.defined()) continue;
        kernels::conv2d_weight_gradient(s, gx, gdy, dw, workspace(kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)));
      }
    });
    return {gpu().host(r.y), gpu().host(r.dx), gpu().host(r.dw), r.narrow_dw.defined() ? gpu().host(r.narrow_dw) : Tensor()};
  }

  void check(const ConvShape& s, DType dtype, bool biased) {
    SCOPED_TRACE(test::to_string(s) + " " + std::string(to_string(dtype)));
    const test::ConvShapes shapes(s);
    const Tensor x = test::random(shapes.x, dtype, 1), w = test::random(shapes.w, dtype, 2), dy = test::random(shapes.y, dtype, 3),
                 bias = biased ? test::random({s.outputs}, dtype, 4) : Tensor(),
                 dx_bias = biased ? test::random({s.inputs}, dtype, 5) : Tensor();
    const Results got = convolve(s, x, w, bias, dy, dx_bias);
    Sums y(shapes.y), dx(shapes.x), dw(shapes.w);
    for (i64 i = 0; i < got.y.elems() && biased; ++i) y.add(i, test::at(bias, i / (shapes.y[2] * shapes.y[3]) % s.outputs));
    for (i64 i = 0; i < got.dx.elems() && biased; ++i) dx.add(i, test::at(dx_bias, i / (shapes.x[2] * shapes.x[3]) % s.inputs));
    test::for_products(s, [&](i64 i, i64 j, i64 k) {
      y.add(k, test::at(x, i) * test::at(w, j));
      dx.add(i, test::at(dy, k) * test::at(w, j));
      dw.add(j, test::at(x, i) * test::at(dy, k));
    });
    const double eps = error_of_an_addition(dtype);
    y.expect(got.y, eps, "y"), dx.expect(got.dx, eps, "dx"), dw.expect(got.dw, eps, "dw");
    if (!got.narrow_dw.defined()) return;
    EXPECT_TRUE(test::same_bits(got.narrow_dw, test::as(dtype, got.dw))) << "rounded once";
  }

  void check_beside_cpu(const ConvShape& s) {
    constexpr DType kType = DType::f64;
    const test::ConvShapes shapes(s);
    const Tensor x = test::random(shapes.x, kType, 1), w = test::random(shapes.w, kType, 2), dy = test::random(shapes.y, kType, 3),
                 bias = test::random({s.outputs}, kType, 4);
    const Results got = convolve(s, x, w, bias, dy);
    const Tensor y = empty(shapes.y, kType), dx = empty(shapes.x, kType), dw = empty(shapes.w, kType);
    const auto bytes = [](i64 n) { return empty({n}, DType::uint8); };
    kernels::conv2d(s, x, w, bias, y, bytes(kernels::conv2d_workspace_bytes(s, kType)));
    kernels::conv2d_input_gradient(s, dy, w, {}, dx, bytes(kernels::conv2d_input_gradient_workspace_bytes(s, kType)));
    kernels::conv2d_weight_gradient(s, x, dy, dw, bytes(kernels::conv2d_weight_gradient_workspace_bytes(s, kType)));
    // CPU and GPU make at most about 5000 additions each, in sums of fewer terms than that, none of which exceeds 3.
    constexpr double kNear = 2 * 5000.0 * 3 * 5000 * 0x1p-53;
    test::expect_near(got.y, y, 0, kNear, "y");
    test::expect_near(got.dx, dx, 0, kNear, "dx");
    test::expect_near(got.dw, dw, 0, kNear, "dw");
  }
};

TEST_F(ConvTwins, OddShapes) {
  for (const ConvShape& s : test::odd_convolutions()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) check(s, dtype, s.outputs % 2 == 0);
  }
  check(test::odd_convolutions()[4], DType::f64, true);
}

TEST_F(ConvTwins, SmallestAndEmptiest) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    check({1, 1, 1, 1, 1, {1}}, dtype, true);
    check({1, 1, 1, 1, {1, 9}, {{1, 4}, 2, {0, 1}}}, dtype, false);
    check({2, 2, 3, 1, 1, {1, 11, 5}}, dtype, true);   // no tap of the kernel meets the image, so results are the biases
    check({2, 2, 3, 1, 1, {1, 11, 5}}, dtype, false);  // no tap of the kernel meets the image, so results are zeros
  }
}

TEST_F(ConvTwins, AsOnTheCpu) { check_beside_cpu({4, 16, 24, 2, {8, 9}, {3, 2, 1}}); }

// The matrix of columns has 512 x 3 x 3 rows of doubles, so it is cut into strips of 512 columns. A strip then ends inside an image.
TEST_F(ConvTwins, SeveralStrips) {
  const ConvShape s{3, 512, 1, 1, {11, 31}, {3, 1, 1}};
  const kernels::Strips strips = kernels::product_strips(kernels::forward_columns(s), s.outputs, DType::f64);
  ASSERT_EQ(strips.j, 1023);
  ASSERT_EQ(strips.width, 512);
  check_beside_cpu(s);
}

TEST_F(ConvTwins, SameBitsWheneverAndWherever) {
  const ConvShape s{5, 10, 12, 2, {9, 10}, {3, 2, 1}};
  const test::ConvShapes shapes(s);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = test::random(shapes.x, dtype, 1), w = test::random(shapes.w, dtype, 2), dy = test::random(shapes.y, dtype, 3),
                 bias = test::random({s.outputs}, dtype, 4);
    const Results first = convolve(s, x, w, bias, dy);
    const Tensor elsewhere = gpu().empty({1000}, DType::f32);
    const Results second = convolve(s, x, w, bias, dy);
    EXPECT_TRUE(test::same_bits(first.y, second.y) && test::same_bits(first.dx, second.dx) && test::same_bits(first.dw, second.dw));
  }
}

// Computes the images of a batch one by one, as views that begin at any element, and compares with the whole batch.
TEST_F(ConvTwins, PartsOfABatch) {
  const ConvShape all{3, 3, 4, 1, {5, 7}, {3, 1, 1}};
  ConvShape one = all;
  one.images = 1;
  const test::ConvShapes shapes(all);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = gpu()(test::random(shapes.x, dtype, 1)), w = gpu()(test::random(shapes.w, dtype, 2));
    const Tensor part = gpu().empty(shapes.y, dtype), alone = gpu().empty(test::ConvShapes(one).y, dtype);
    gpu().run([&] {
      const i64 bytes = kernels::conv2d_workspace_bytes(one, dtype);
      kernels::conv2d(one, x.slice(0, 1, 2), w, {}, part.slice(0, 1, 2), workspace(bytes));
      kernels::conv2d(one, to_current_device(x.slice(0, 1, 2)), w, {}, alone, workspace(bytes));
    });
    EXPECT_TRUE(test::same_bits(gpu().host(alone), gpu().host(part).slice(0, 1, 2)));
  }
}

TEST_F(ConvTwins, WorkspacesAreThoseOfThePlan) {
  for (const ConvShape& s : test::odd_convolutions()) {
    const auto bytes = [&] {
      return std::vector<i64>{kernels::conv2d_workspace_bytes(s, DType::bf16),
                              kernels::conv2d_input_gradient_workspace_bytes(s, DType::bf16),
                              kernels::conv2d_weight_gradient_workspace_bytes(s, DType::bf16)};
    };
    const Stream planned{Device::meta(Device::Kind::cuda), nullptr, Stream::current().memory};
    const StreamScope scope(planned);
    EXPECT_EQ(bytes(), gpu().run(bytes));
  }
  const Tensor x = gpu()(test::random({1, 1, 4, 4}, DType::f32, 1)), w = gpu()(test::random({1, 1, 1, 1}, DType::f32, 2)),
               y = gpu().empty({1, 1, 4, 4}, DType::f32);
  const ConvShape s{1, 1, 1, 1, 4, {1}};
  gpu().run([&] {
    const i64 bytes = kernels::conv2d_workspace_bytes(s, DType::f32);
    EXPECT_THROW(kernels::conv2d(s, x, w, {}, y, workspace(bytes - 1)), Error);
  });
}

TEST_F(ConvTwins, SumsOfChannels) {
  const Shape shapes[] = {{1, 1, 1, 1}, {700, 2}, {5, 3, 7, 7}, {2, 2, 50, 68}};
  for (const Shape& shape : shapes) {
    for (const auto& [in, out] :
         {std::pair{DType::f32, DType::f32}, {DType::f64, DType::f64}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
      SCOPED_TRACE(to_string(shape) + " " + std::string(to_string(in)));
      const Tensor x = test::random(shape, in, 1), gx = gpu()(x);
      const i64 channels = shape[1], plane = x.elems() / (shape[0] * channels);
      const Tensor sums = gpu()(spoilt({channels}, out));
      gpu().run([&] { kernels::sum_channels(gx, sums); });
      Sums want({channels});
      for (i64 i = 0; i < x.elems(); ++i) want.add(i / plane % channels, test::at(x, i));
      for (i64 c = 0; c < channels; ++c) {
        const double sum = test::at(want.sum, c), order = 1.01 * test::at(want.terms, c) * 0x1p-53 * test::at(want.size, c);
        // The sum is rounded to fp32, and the fp32 value is rounded to bf16.
        const double stored = out == DType::f64 ? 0 : (test::half_ulp(out) + test::half_ulp(DType::f32)) * std::abs(sum);
        ASSERT_NEAR(test::at(gpu().host(sums), c), sum, order + stored) << c;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::conv_cuda_test
