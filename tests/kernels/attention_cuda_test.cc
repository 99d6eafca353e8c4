// Attention on a GPU beside its twin on the CPU and fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/attention.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16};

class AttentionTwins : public test::GpuTest {};

struct Case {
  i64 batch, queries, keys, heads, kv_heads, width;
  bool causal = true;
  double dropout = 0;
  Shape q() const { return {batch, queries, heads, width}; }
  Shape k() const { return {batch, keys, kv_heads, width}; }
  kernels::AttentionMask mask() const {
    return {1 / std::sqrt(static_cast<double>(width)), causal, dropout, RandomKey{77}.derive("attention"), 5};
  }
  std::string name() const {
    return to_string(q()) + " over " + to_string(k()) + (causal ? " causal" : "") + (dropout > 0 ? " dropout" : "");
  }
};

struct Inputs {
  Tensor q, k, v, dout;
};
struct Results {
  Tensor out, lse, dq, dk, dv;
};

Inputs inputs(const Case& c, DType dtype) {
  return {test::random(c.q(), dtype, 1), test::random(c.k(), dtype, 2), test::random(c.k(), dtype, 3), test::random(c.q(), dtype, 4)};
}

Results run(const Case& c, const Inputs& in) {
  const DType dtype = in.q.dtype();
  const Results r{empty(c.q(), dtype), empty({c.batch, c.heads, c.queries}, wide_dtype(dtype)), empty(c.q(), dtype), empty(c.k(), dtype),
                  empty(c.k(), dtype)};
  const auto bytes = [](i64 n) { return empty({n}, DType::uint8); };
  kernels::attention(in.q, in.k, in.v, c.mask(), r.out, r.lse, bytes(kernels::attention_workspace_bytes(c.q(), c.k(), dtype)));
  kernels::attention_gradient(in.q, in.k, in.v, r.out, r.lse, in.dout, c.mask(), r.dq, r.dk, r.dv,
                              bytes(kernels::attention_gradient_workspace_bytes(c.q(), c.k(), dtype)));
  return r;
}

template <class F>
Results each(const Results& r, F f) {
  return {f(r.out), f(r.lse), f(r.dq), f(r.dk), f(r.dv)};
}

Results on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in) {
  const Results r = gpu.run([&] { return run(c, {gpu(in.q), gpu(in.k), gpu(in.v), gpu(in.dout)}); });
  return each(r, [&](const Tensor& t) { return gpu.host(t); });
}

Results in_fp64(const Case& c, const Inputs& in) {
  const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
  return run(c, {wide(in.q), wide(in.k), wide(in.v), wide(in.dout)});
}

void expect_same_bits(const Results& a, const Results& b) {
  EXPECT_TRUE(test::same_bits(a.out, b.out));
  EXPECT_TRUE(test::same_bits(a.lse, b.lse));
  EXPECT_TRUE(test::same_bits(a.dq, b.dq));
  EXPECT_TRUE(test::same_bits(a.dk, b.dk));
  EXPECT_TRUE(test::same_bits(a.dv, b.dv));
}

// A score of numbers of size 1 is a sum of D products, sqrt(D) u off, less by the scale: u, and so is a probability, relatively, by some
// u for the exponential and its sum. A gradient of scores sums D products again (sqrt(D) u), and dk and dv add the group's queries, of
// sizes that fall as probabilities do. Ten times the sum of these. Where the result is narrow, out is rounded and the gradient's delta with
// it: a relative error of the probabilities' gradients of half an ulp of out.
void expect_near_exact(const Case& c, const Results& got, const Results& exact, const std::string& what) {
  const DType dtype = got.out.dtype();
  const double u = test::half_ulp(wide_dtype(dtype)), narrow = dtype == DType::bf16 ? test::half_ulp(dtype) : 0;
  const double rows = std::sqrt(static_cast<double>(c.queries * c.heads / c.kv_heads));
  const double near = 10 * u * (std::sqrt(static_cast<double>(c.width)) + 4);
  test::expect_near(got.lse, exact.lse, near, near, what + " lse");
  test::expect_near(got.out, exact.out, near + narrow, near, what + " out");
  test::expect_near(got.dq, exact.dq, near + narrow, near + 4 * narrow, what + " dq");
  test::expect_near(got.dk, exact.dk, near + narrow, near * rows + 4 * narrow, what + " dk");
  test::expect_near(got.dv, exact.dv, near + narrow, near * rows, what + " dv");
}

TEST_F(AttentionTwins, NearFp64AndTheCpu) {
  const Case cases[] = {
      {1, 1, 1, 1, 1, 1},         // one of everything
      {2, 5, 5, 2, 1, 3, false},  // odd, a group of heads, nothing forbidden
      {1, 65, 65, 1, 1, 20},      // one row more than a tile
      {1, 6, 70, 2, 2, 36},       // more keys than queries: what came before
      {1, 66, 66, 2, 1, 8},       // a group over tiles
      {1, 7, 7, 1, 1, 136},       // wider than a block of columns
      {1, 66, 70, 1, 1, 16, true, 0.3},
  };
  for (const Case& c : cases) {
    for (const DType dtype : kFloats) {
      const Inputs in = inputs(c, dtype);
      const std::string name = c.name() + " " + std::string(to_string(dtype));
      const Results exact = in_fp64(c, in);
      expect_near_exact(c, run(c, in), exact, name + " CPU");
      expect_near_exact(c, on_gpu(gpu(), c, in), exact, name + " GPU");
    }
  }
}

// q, k and v as thirds of one tensor [B, T, 3 H, D + room], from element `room` of each row on: with room 0 as GPT-2 has them, with another
// one no access of four elements is aligned.
struct Packed {
  Case c;
  i64 room;
  Shape shape() const { return {c.batch, c.queries, 3 * c.heads, c.width + room}; }
  Tensor third(const Tensor& all, int n) const { return all.slice(2, n * c.heads, (n + 1) * c.heads).slice(3, room, room + c.width); }
  // f(whole tensor's element, third's element), in bytes.
  template <class F>
  void for_elements(int n, i64 size, F f) const {
    for (i64 row = 0; row < c.batch * c.queries * c.heads; ++row) {
      const i64 at = (row / c.heads * 3 * c.heads + n * c.heads + row % c.heads) * (c.width + room) + room;
      for (i64 i = 0; i < c.width; ++i) f((at + i) * size, (row * c.width + i) * size);
    }
  }
  Tensor pack(const Tensor (&parts)[3]) const {
    const Tensor all = zeros(shape(), parts[0].dtype());
    const i64 size = size_of(all.dtype());
    for (int n = 0; n < 3; ++n) {
      for_elements(n, size, [&](i64 to, i64 from) { std::memcpy(all.raw() + to, parts[n].raw() + from, static_cast<size_t>(size)); });
    }
    return all;
  }
  Tensor unpack(const Tensor& all, int n) const {
    const Tensor part = empty(c.q(), all.dtype());
    const i64 size = size_of(all.dtype());
    for_elements(n, size, [&](i64 from, i64 to) { std::memcpy(part.raw() + to, all.raw() + from, static_cast<size_t>(size)); });
    return part;
  }
};

TEST_F(AttentionTwins, TheSameBitsAgainAndInOtherViews) {
  const Case c{1, 9, 9, 2, 2, 12};
  for (const DType dtype : kFloats) {
    const Inputs in = inputs(c, dtype);
    const Results once = on_gpu(gpu(), c, in);
    expect_same_bits(once, on_gpu(gpu(), c, in));
    for (const i64 room : {0, 1}) {
      const Packed packed{c, room};
      const Tensor all = packed.pack({in.q, in.k, in.v}), gradients = gpu().empty(packed.shape(), dtype),
                   outs = gpu()(packed.pack({once.out, in.dout, once.out})), lse = gpu()(once.lse);
      gpu().run([&] {
        const Tensor qkv = gpu()(all), workspace = empty({kernels::attention_gradient_workspace_bytes(c.q(), c.k(), dtype)}, DType::uint8);
        kernels::attention(packed.third(qkv, 0), packed.third(qkv, 1), packed.third(qkv, 2), c.mask(), packed.third(outs, 2), lse,
                           workspace);
        kernels::attention_gradient(packed.third(qkv, 0), packed.third(qkv, 1), packed.third(qkv, 2), packed.third(outs, 0), lse,
                                    packed.third(outs, 1), c.mask(), packed.third(gradients, 0), packed.third(gradients, 1),
                                    packed.third(gradients, 2), workspace);
      });
      const Tensor got = gpu().host(gradients);
      expect_same_bits(
          once, {packed.unpack(gpu().host(outs), 2), gpu().host(lse), packed.unpack(got, 0), packed.unpack(got, 1), packed.unpack(got, 2)});
    }
  }
}

}  // namespace
}  // namespace spillway
