// Compares attention on a GPU with the CPU implementation and with fp64.
// In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/sequence/attention.h"

#include <span>

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::attention_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class AttentionTwins : public test::GpuTest {};
using AttentionTwinsMore = AttentionTwins;

struct Case {
  i64 batch, queries, keys, heads, kv_heads, width;
  bool causal = true;
  double dropout = 0;
  i64 window = 0;
  bool documents = false;
  double softcap = 0;
  bool sinks = false;
  Shape q() const { return {batch, queries, heads, width}; }
  Shape k() const { return {batch, keys, kv_heads, width}; }
  kernels::AttentionMask mask() const {
    kernels::AttentionMask mask{1 / std::sqrt(static_cast<double>(width)), causal, dropout, RandomKey{77}.derive("attention"), 5};
    mask.softcap = softcap, mask.window = window;
    return mask;
  }
  // Returns positions of packed documents. Their lengths grow by four (1, 5, 9 … in row 0), and each row begins with another length.
  Tensor positions() const {
    if (!documents) return {};
    const Tensor positions = empty({batch, keys}, DType::int32);
    for (i64 b = 0; b < batch; ++b) {
      for (i64 s = 0, begin = 0, length = 1 + 4 * b; s < keys; ++s) {
        if (s == begin + length) begin = s, length += 4;
        positions.data<i32>()[b * keys + s] = static_cast<i32>(s - begin);
      }
    }
    return positions;
  }
  std::string name() const {
    return to_string(q()) + " over " + to_string(k()) + (causal ? " causal" : "") + (dropout > 0 ? " dropout" : "") +
           (window > 0 ? " window" : "") + (documents ? " documents" : "") + (softcap > 0 ? " softcap" : "") + (sinks ? " sinks" : "");
  }
};

struct Inputs {
  Tensor q, k, v, dout, positions, sinks;
};
struct Results {
  Tensor out, lse, dq, dk, dv, dsinks;  // dsinks is undefined if there are no sinks
};

Inputs inputs(const Case& c, DType dtype) {
  return {test::random(c.q(), dtype, 1),
          test::random(c.k(), dtype, 2),
          test::random(c.k(), dtype, 3),
          test::random(c.q(), dtype, 4),
          c.positions(),
          c.sinks ? test::random({c.heads}, dtype, 5) : Tensor()};
}

Results run(const Case& c, const Inputs& in) {
  const DType dtype = in.q.dtype();
  const Results r{empty(c.q(), dtype), empty({c.batch, c.heads, c.queries}, wide_dtype(dtype)), empty(c.q(), dtype), empty(c.k(), dtype),
                  empty(c.k(), dtype), c.sinks ? empty({c.heads}, wide_dtype(dtype)) : Tensor()};
  const auto bytes = [](i64 n) { return empty({n}, DType::uint8); };
  kernels::AttentionMask mask = c.mask();
  mask.positions_BT = in.positions, mask.sinks_H = in.sinks;
  kernels::attention(in.q, in.k, in.v, mask, r.out, r.lse, bytes(kernels::attention_workspace_bytes(c.q(), c.k(), dtype)));
  kernels::attention_gradient(in.q, in.k, in.v, r.out, r.lse, in.dout, mask, r.dq, r.dk, r.dv,
                              bytes(kernels::attention_gradient_workspace_bytes(c.q(), c.k(), dtype)));
  if (c.sinks) kernels::attention_sinks_gradient(r.out, r.lse, in.dout, in.sinks, r.dsinks);
  return r;
}

template <class F>
Results each(const Results& r, F f) {
  return {f(r.out), f(r.lse), f(r.dq), f(r.dk), f(r.dv), r.dsinks.defined() ? f(r.dsinks) : Tensor()};
}

Results on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in) {
  const Results r = gpu.run([&] {
    const auto there = [&](const Tensor& t) { return t.defined() ? gpu(t) : Tensor(); };
    return run(c, {gpu(in.q), gpu(in.k), gpu(in.v), gpu(in.dout), there(in.positions), there(in.sinks)});
  });
  return each(r, [&](const Tensor& t) { return gpu.host(t); });
}

Inputs wide(const Inputs& in) {
  const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
  return {wide(in.q), wide(in.k), wide(in.v), wide(in.dout), in.positions, in.sinks.defined() ? wide(in.sinks) : Tensor()};
}
Results in_fp64(const Case& c, const Inputs& in) { return run(c, wide(in)); }

void expect_same_bits(const Results& a, const Results& b) {
  EXPECT_TRUE(test::same_bits(a.out, b.out));
  EXPECT_TRUE(test::same_bits(a.lse, b.lse));
  EXPECT_TRUE(test::same_bits(a.dq, b.dq));
  EXPECT_TRUE(test::same_bits(a.dk, b.dk));
  EXPECT_TRUE(test::same_bits(a.dv, b.dv));
  if (a.dsinks.defined()) {
    EXPECT_TRUE(test::same_bits(a.dsinks, b.dsinks));
  }
}

// The gradient of a sink sums, over the batch and the queries, probabilities times scalar products of rows, which have `relative` errors of
// rows of length 1 and of products of D terms.
void expect_sinks_near(const Case& c, const Results& got, const Results& exact, double relative, const std::string& what) {
  if (!c.sinks) return;
  const double rows = std::sqrt(static_cast<double>(c.batch * c.queries * c.width));
  test::expect_near(got.dsinks, exact.dsinks, relative, relative * rows, what + " dsinks");
}

// Expects results near the fp64 ones. Let u be half an ulp. A score sums D products of numbers of size 1, with an error of
// sqrt(D) u that the scale reduces to u. A probability has a relative error of u from its score, and of some u for the
// exponential and its sum. A gradient of scores sums D products again (sqrt(D) u), and dk and dv add the queries of the group,
// whose sizes fall as probabilities do. The tolerance is ten times the sum of these errors. If results are narrow, `out` is
// rounded, and with it the gradient's delta: the gradients of probabilities then have a relative error of half an ulp of `out`.
void expect_near_exact(const Case& c, const Results& got, const Results& exact, const std::string& what) {
  const DType dtype = got.out.dtype();
  const double u = test::half_ulp(wide_dtype(dtype)), narrow = is_half(dtype) ? test::half_ulp(dtype) : 0;
  const double rows = std::sqrt(static_cast<double>(c.queries * c.heads / c.kv_heads));
  const double near = 10 * u * (std::sqrt(static_cast<double>(c.width)) + 4);
  test::expect_near(got.lse, exact.lse, near, near, what + " lse");
  test::expect_near(got.out, exact.out, near + narrow, near, what + " out");
  test::expect_near(got.dq, exact.dq, near + narrow, near + 4 * narrow, what + " dq");
  test::expect_near(got.dk, exact.dk, near + narrow, near * rows + 4 * narrow, what + " dk");
  test::expect_near(got.dv, exact.dv, near + narrow, near * rows, what + " dv");
  expect_sinks_near(c, got, exact, near + 4 * narrow, what);
}

void expect_near_fp64_and_the_cpu(test::Gpu& gpu, std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    for (const DType dtype : kFloats) {
      const Inputs in = inputs(c, dtype);
      const std::string name = c.name() + " " + std::string(to_string(dtype));
      const Results exact = in_fp64(c, in);
      expect_near_exact(c, run(c, in), exact, name + " CPU");
      expect_near_exact(c, on_gpu(gpu, c, in), exact, name + " GPU");
    }
  }
}

TEST_F(AttentionTwins, NearFp64AndTheCpu) {
  expect_near_fp64_and_the_cpu(gpu(),
                               {
                                   {1, 1, 1, 1, 1, 1},                                    // all sizes are 1
                                   {2, 5, 5, 2, 1, 3, false},                             // odd sizes, a group of heads, no mask
                                   {1, 65, 65, 1, 1, 20},                                 // one query and key more than a tile
                                   {1, 6, 70, 2, 2, 36},                                  // more keys than queries, as with a cache
                                   {1, 7, 7, 1, 1, 136},                                  // head width above one block of columns
                                   {1, 70, 70, 2, 1, 8, true, 0.3, 65, true, 0.7, true},  // all that limits and changes scores together
                               });
}

TEST_F(AttentionTwinsMore, NearFp64AndTheCpu) {
  expect_near_fp64_and_the_cpu(
      gpu(), {
                 {1, 66, 66, 2, 1, 8},  // a group of heads over several tiles of queries
                 {1, 66, 70, 1, 1, 16, true, 0.3},
                 {1, 140, 140, 2, 1, 8, true, 0, 3},               // a sliding window that skips whole tiles of keys
                 {1, 70, 140, 1, 1, 20, true, 0.3, 65},            // a sliding window longer than a tile that does not reach the first key
                 {2, 140, 140, 1, 1, 8, true, 0, 0, true},         // packed documents, different in each row
                 {2, 66, 140, 2, 1, 36, true, 0.3, 7, true, 0.7},  // sliding window, documents, dropout and logit cap together
                 {1, 66, 66, 1, 1, 16, false, 0, 0, false, 1.5},
             });
}

// Compares rows of the last axis by their Euclidean lengths: |got - want| <= relative |want| + absolute.
void expect_rows_near(const Tensor& got, const Tensor& want, double relative, double absolute, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const i64 width = want.size(want.rank() - 1);
  for (i64 row = 0; row < want.elems() / width; ++row) {
    double off = 0, length = 0;
    for (i64 i = row * width; i < (row + 1) * width; ++i) {
      off += std::pow(test::at(got, i) - test::at(want, i), 2);
      length += std::pow(test::at(want, i), 2);
    }
    ASSERT_LE(std::sqrt(off), absolute + relative * std::sqrt(length)) << what << " row " << row;
  }
}

// Returns the gradients in fp64 for the given `out` and log-sum-exp of the forward, so that both sides of a comparison use the same
// delta.
Results gradients_in_fp64(const Case& c, const Inputs& in, const Results& of) {
  const Inputs exact = wide(in);
  const Tensor out = test::as(DType::f64, of.out), lse = test::as(DType::f64, of.lse);
  const Results r{out,
                  lse,
                  empty(c.q(), DType::f64),
                  empty(c.k(), DType::f64),
                  empty(c.k(), DType::f64),
                  c.sinks ? empty({c.heads}, DType::f64) : Tensor()};
  kernels::AttentionMask mask = c.mask();
  mask.positions_BT = in.positions, mask.sinks_H = exact.sinks;
  kernels::attention_gradient(exact.q, exact.k, exact.v, out, lse, exact.dout, mask, r.dq, r.dk, r.dv,
                              empty({kernels::attention_gradient_workspace_bytes(c.q(), c.k(), DType::f64)}, DType::uint8));
  if (c.sinks) kernels::attention_sinks_gradient(out, lse, exact.dout, exact.sinks, r.dsinks);
  return r;
}

// Tensor cores multiply probabilities and gradients of scores that are rounded to bf16 or f16. Each is off by at most
// u = half an ulp, independently, as are the elements that they are multiplied with. A sum of such products, taken as
// a row of a head, is then off by at most u of its length (about 0.4 u, and less than u if one product dominates), and
// is rounded once more. One more u is for sums of terms that cancel. A key too many or too few among n would change a
// row by 1 / sqrt(n) of its length, which is far more. The remaining errors are those of f32 in expect_near_exact().
//
// A soft cap has an absolute error of 2^-21 of the cap, which becomes a relative error of probabilities.
void expect_near_fp64_on_tensor_cores(test::Gpu& gpu, std::span<const Case> cases) {
  for (size_t i = 0; i < 2 * cases.size(); ++i) {
    const Case& c = cases[i / 2];
    const DType dtype = i % 2 == 0 ? DType::bf16 : DType::f16;
    const Inputs in = inputs(c, dtype);
    const Results got = on_gpu(gpu, c, in), exact = in_fp64(c, in), after = gradients_in_fp64(c, in, got);
    const double capped = c.softcap * 0x1p-21, u = test::half_ulp(dtype) + capped;
    const double f32 = 10 * test::half_ulp(DType::f32) * (std::sqrt(static_cast<double>(c.width)) + 4);
    test::expect_near(got.lse, exact.lse, f32, f32 + capped, c.name() + " lse");
    const double floor = f32 * static_cast<double>(c.width);
    expect_rows_near(got.out, exact.out, 3 * u, floor, c.name() + " out");
    expect_rows_near(got.dq, after.dq, 3 * u, floor, c.name() + " dq");
    expect_rows_near(got.dk, after.dk, 3 * u, floor, c.name() + " dk");
    expect_rows_near(got.dv, after.dv, 3 * u, floor, c.name() + " dv");
    expect_sinks_near(c, got, after, f32, c.name());
  }
}

TEST_F(AttentionTwins, TensorCoresNearFp64) {
  const Case cases[] = {
      {1, 1, 1, 1, 1, 64},             // one query and one key
      {2, 63, 63, 1, 1, 64},           // one query and key less than a tile
      {1, 65, 65, 4, 2, 64},           // one key more than a tile, groups of heads
      {1, 300, 300, 1, 1, 64},         // several blocks of queries and of keys
      {1, 130, 130, 2, 1, 128},        // the largest head width
      {1, 3, 200, 2, 1, 96},           // more keys than queries
      {1, 40, 70, 1, 1, 64},           // the first query of a warp sees all keys of a tile except one
      {1, 40, 41, 1, 1, 64},           // only one query of a tile sees the first key of a warp
      {1, 130, 131, 1, 1, 80},         // a head width that is padded; one key more than queries
      {1, 70, 140, 1, 1, 112, false},  // no mask
      {1, 66, 70, 2, 1, 32, true, 0.3},
      {1, 33, 129, 1, 1, 128, false, 0.5},
      {1, 70, 100, 2, 1, 256},  // heads of more than 128 elements, whose tiles have fewer rows
      {1, 33, 40, 1, 1, 160, false, 0.3},
  };
  expect_near_fp64_on_tensor_cores(gpu(), cases);
}

TEST_F(AttentionTwins, WindowsDocumentsAndCapsOnTensorCoresNearFp64) {
  const Case cases[] = {
      {1, 200, 200, 2, 1, 64, true, 0, 66},  // windows that begin in any row of a tile; a tile's first query is the last to see key 127
      {1, 66, 200, 1, 1, 96, true, 0, 65},   // no query sees the first tile of keys
      {2, 140, 140, 1, 1, 64, true, 0, 0, true},      // documents, other ones in each row
      {1, 66, 130, 1, 1, 80, false, 0, 0, false, 2},  // only a soft cap
      {1, 70, 130, 2, 1, 112, true, 0, 30, true, 1.5, true},
      {1, 70, 130, 1, 1, 64, true, 0.3, 30, true, 1.5},   // with dropout
      {1, 40, 40, 4, 2, 64, true, 0, 0, false, 0, true},  // only sinks
      {1, 40, 100, 1, 1, 256, true, 0, 40, true, 2},
  };
  expect_near_fp64_on_tensor_cores(gpu(), cases);
}

TEST_F(AttentionTwinsMore, WindowsDocumentsAndCapsOnTensorCoresNearFp64) {
  const Case cases[] = {
      {1, 130, 130, 1, 1, 64, true, 0, 1},         // each query sees its own key alone
      {2, 300, 300, 1, 1, 64, true, 0, 0, true},   // rows of more than two blocks of queries and of keys
      {1, 200, 230, 2, 1, 128, true, 0, 0, true},  // documents of which the first have no queries
      {1, 130, 260, 1, 1, 64, true, 0, 100, false, 50},
      {2, 130, 200, 2, 1, 112, true, 0, 30, true, 1.5},
      {1, 100, 140, 1, 1, 128, true, 0.3, 60},
      {1, 70, 130, 2, 1, 256, true, 0, 40, true, 2},
  };
  expect_near_fp64_on_tensor_cores(gpu(), cases);
}

// The keys of few queries are split into parts of 512. Some parts have no key that a query sees.
TEST_F(AttentionTwins, SplitKeysOnTensorCoresNearFp64) {
  const Case cases[] = {
      {1, 1, 513, 2, 1, 64},
      {2, 3, 1100, 1, 1, 96, true, 0, 600, true},
      {1, 16, 600, 1, 1, 128, true, 0, 40, false, 2, true},
      {1, 2, 520, 1, 1, 32, true, 0.3},  // not split
  };
  expect_near_fp64_on_tensor_cores(gpu(), cases);
}

TEST_F(AttentionTwinsMore, SplitKeysOnTensorCoresNearFp64) {
  const Case cases[] = {{1, 16, 1030, 2, 1, 128, true, 0, 40, false, 2, true}, {1, 16, 600, 1, 1, 256, false}};
  expect_near_fp64_on_tensor_cores(gpu(), cases);
}

// A window that holds all keys must not change a bit.
TEST_F(AttentionTwins, AWindowOfTheWholeRowOnTensorCores) {
  const Case plain{1, 40, 70, 1, 1, 64};
  Case whole = plain;
  whole.window = 70;
  const Inputs in = inputs(plain, DType::bf16);
  expect_same_bits(on_gpu(gpu(), whole, in), on_gpu(gpu(), plain, in));
}

// The results of one sample must depend neither on its place in the batch nor on the other samples.
TEST_F(AttentionTwins, SamplesOfABatchOnTensorCores) {
  const Case two{2, 40, 66, 2, 1, 64}, one{1, 40, 66, 2, 1, 64};
  const Inputs in = inputs(two, DType::bf16);
  const Results both = on_gpu(gpu(), two, in);
  for (const i64 b : {0, 1}) {
    const auto sample = [&](const Tensor& t) { return t.slice(0, b, b + 1); };
    expect_same_bits(each(both, sample), on_gpu(gpu(), one, {sample(in.q), sample(in.k), sample(in.v), sample(in.dout)}));
  }
}

// Attention must give bitwise the same results if a thread block has as little shared memory as on workstation GPUs, which the test
// emulates.
TEST_F(AttentionTwins, TheSameBitsWithLessSharedMemoryOnTensorCores) {
  if (!std::getenv("SPILLWAY_EMULATED_GPUS")) GTEST_SKIP() << "needs emulated GPUs";
  for (const Case& c : {Case{1, 100, 130, 2, 1, 96}, Case{1, 70, 101, 1, 1, 128, true, 0.3},
                        Case{1, 100, 130, 1, 1, 128, true, 0, 40, false, 2}, Case{1, 70, 90, 1, 1, 256}}) {
    const Inputs in = inputs(c, DType::bf16);
    const Results wide = on_gpu(gpu(), c, in);
    ::setenv("SPILLWAY_EMULATED_SHARED_BYTES", "101376", 1);
    const Results narrow = on_gpu(gpu(), c, in);
    ::unsetenv("SPILLWAY_EMULATED_SHARED_BYTES");
    expect_same_bits(narrow, wide);
  }
}

// Copies `t` to the GPU and fills the memory behind it with NaN. All axes before `axis` must have size 1.
Tensor before_nan(test::Gpu& gpu, const Tensor& t, int axis) {
  Shape shape = t.shape();
  shape.set(axis, t.size(axis) + 64);
  const Tensor all = empty(shape, t.dtype());
  std::memset(all.raw(), 0xff, static_cast<size_t>(all.bytes()));
  std::memcpy(all.raw(), t.raw(), static_cast<size_t>(t.bytes()));
  return gpu(all).slice(axis, 0, t.size(axis));
}

TEST_F(AttentionTwins, NothingBehindTheLastRowOnTensorCores) {
  for (const Case& c : {Case{1, 65, 70, 1, 1, 64}, Case{1, 65, 70, 1, 1, 96}, Case{1, 65, 70, 1, 1, 64, true, 0, 20, false, 2}}) {
    const Inputs in = inputs(c, DType::bf16);
    const Results plain = on_gpu(gpu(), c, in);
    const auto rows = [&](const Tensor& t) { return before_nan(gpu(), t, 1); };
    const Tensor q = rows(in.q), k = rows(in.k), v = rows(in.v), dout = rows(in.dout), out = rows(plain.out),
                 lse = before_nan(gpu(), plain.lse, 2),
                 workspace =
                     before_nan(gpu(), empty({kernels::attention_gradient_workspace_bytes(c.q(), c.k(), DType::bf16)}, DType::uint8), 0);
    const Results again = gpu().run([&] {
      const Results r{empty(c.q(), DType::bf16), empty(plain.lse.shape(), DType::f32), empty(c.q(), DType::bf16), empty(c.k(), DType::bf16),
                      empty(c.k(), DType::bf16)};
      kernels::attention(q, k, v, c.mask(), r.out, r.lse, workspace);
      kernels::attention_gradient(q, k, v, out, lse, dout, c.mask(), r.dq, r.dk, r.dv, workspace);
      return r;
    });
    expect_same_bits(plain, each(again, [&](const Tensor& t) { return gpu().host(t); }));
  }
}

// Holds q, k and v as thirds of one tensor [B, T, 3 H, D + room], beginning at element `room` of each
// row. GPT-2's layout has room 0. With other values of room no access of four elements is aligned.
struct Packed {
  Case c;
  i64 room;
  Shape shape() const { return {c.batch, c.queries, 3 * c.heads, c.width + room}; }
  Tensor third(const Tensor& all, int n) const { return all.slice(2, n * c.heads, (n + 1) * c.heads).slice(3, room, room + c.width); }
  // Calls f(byte offset of an element in the whole tensor, its byte offset in third n) for each element of third n.
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

void expect_same_bits_again(test::Gpu& gpu, const Case& c, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) {
    const Inputs in = inputs(c, dtype);
    const Results once = on_gpu(gpu, c, in);
    expect_same_bits(once, on_gpu(gpu, c, in));
    for (const i64 room : {0, 1}) {
      const Packed packed{c, room};
      const Tensor all = packed.pack({in.q, in.k, in.v}), gradients = gpu.empty(packed.shape(), dtype),
                   outs = gpu(packed.pack({once.out, in.dout, once.out})), lse = gpu(once.lse);
      gpu.run([&] {
        const Tensor qkv = gpu(all), workspace = empty({kernels::attention_gradient_workspace_bytes(c.q(), c.k(), dtype)}, DType::uint8);
        kernels::attention(packed.third(qkv, 0), packed.third(qkv, 1), packed.third(qkv, 2), c.mask(), packed.third(outs, 2), lse,
                           workspace);
        kernels::attention_gradient(packed.third(qkv, 0), packed.third(qkv, 1), packed.third(qkv, 2), packed.third(outs, 0), lse,
                                    packed.third(outs, 1), c.mask(), packed.third(gradients, 0), packed.third(gradients, 1),
                                    packed.third(gradients, 2), workspace);
      });
      const Tensor got = gpu.host(gradients);
      expect_same_bits(
          once, {packed.unpack(gpu.host(outs), 2), gpu.host(lse), packed.unpack(got, 0), packed.unpack(got, 1), packed.unpack(got, 2)});
    }
  }
}

TEST_F(AttentionTwins, TheSameBitsAgainAndInOtherViews) {
  expect_same_bits_again(gpu(), {1, 9, 9, 2, 2, 12}, {DType::f32, DType::f64, DType::bf16});
  expect_same_bits_again(gpu(), {1, 70, 70, 2, 2, 64}, {DType::bf16});
  expect_same_bits_again(gpu(), {2, 9, 9, 1, 1, 80}, {DType::bf16});
  expect_same_bits_again(gpu(), {1, 40, 40, 1, 1, 32, true, 0.3}, {DType::f16});
  expect_same_bits_again(gpu(), {1, 140, 140, 1, 1, 64, true, 0, 70}, {DType::bf16});
  expect_same_bits_again(gpu(), {1, 140, 140, 1, 1, 96, true, 0, 33, false, 2}, {DType::bf16});
}

}  // namespace
}  // namespace spillway::attention_cuda_test
