// Tests attention by cuDNN: its numbers against fp64, its graphs and workspace as the library itself reports
// them, and the message if the library is missing. In a build with SPILLWAY_CUDA=EMULATED cuDNN is emulated too.
#include <cuda_runtime.h>

#if !defined(__CUDA_EMULATED__) && __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#endif

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "device/device_query.h"
#include "kernels/sequence/attention_library.h"
#include "kernels/sequence/cudnn_graph_cuda.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::cudnn_cuda_test {
namespace {

namespace cudnn = kernels::cudnn;
using kernels::AttentionLibrary;

// Sets how the emulated cuDNN behaves, for as long as the object lives.
class Emulated {
 public:
  explicit Emulated(const char* words) { ::setenv("SPILLWAY_EMULATED_CUDNN", words, 1); }
  ~Emulated() { ::unsetenv("SPILLWAY_EMULATED_CUDNN"); }
};
bool is_emulated() { return std::getenv("SPILLWAY_EMULATED_GPUS") != nullptr; }

struct Case {
  i64 batch, length, heads, kv_heads, width;
  bool causal = true;
  Shape q() const { return {batch, length, heads, width}; }
  Shape k() const { return {batch, length, kv_heads, width}; }
  kernels::AttentionMask mask(AttentionLibrary library) const {
    return {.scale = 1 / std::sqrt(static_cast<double>(width)), .causal = causal, .library = library};
  }
  std::string name() const { return to_string(q()) + " over " + to_string(k()) + (causal ? " causal" : ""); }
};
struct Inputs {
  Tensor q, k, v, dout;
};
struct Results {
  Tensor out, lse, dq, dk, dv;
};

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

// Runs one forward and one backward and returns their results. If `of` holds out and lse of a forward, the backward uses those.
Results run(const Case& c, const Inputs& in, AttentionLibrary library, const Results& of = {}) {
  const DType dtype = in.q.dtype();
  Results r{empty(c.q(), dtype), empty({c.batch, c.heads, c.length}, wide_dtype(dtype)), empty(c.q(), dtype), empty(c.k(), dtype),
            empty(c.k(), dtype)};
  if (of.out.defined()) {
    r.out = of.out, r.lse = of.lse;
  } else {
    kernels::attention(in.q, in.k, in.v, c.mask(library), r.out, r.lse,
                       bytes(kernels::attention_workspace_bytes(c.q(), c.k(), dtype, library)));
  }
  kernels::attention_gradient(in.q, in.k, in.v, r.out, r.lse, in.dout, c.mask(library), r.dq, r.dk, r.dv,
                              bytes(kernels::attention_gradient_workspace_bytes(c.q(), c.k(), dtype, library)));
  return r;
}

// Compares rows of the last axis: the Euclidean length of got - want is at most relative |want| + absolute.
void expect_rows_near(const Tensor& got, const Tensor& want, double relative, double absolute, const std::string& what) {
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

class CudnnTwins : public test::GpuTest {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = kernels::missing_attention_library(query_gpus().gpus[0].compute_capability); !why.empty())
      GTEST_SKIP() << why;
  }
  Inputs inputs(const Case& c, DType dtype) {
    return {test::random(c.q(), dtype, 1), test::random(c.k(), dtype, 2), test::random(c.k(), dtype, 3), test::random(c.q(), dtype, 4)};
  }
  Results on_gpu(const Case& c, const Inputs& in, AttentionLibrary library = AttentionLibrary::cudnn) {
    const Results r = gpu().run([&] { return run(c, {gpu()(in.q), gpu()(in.k), gpu()(in.v), gpu()(in.dout)}, library); });
    return {gpu().host(r.out), gpu().host(r.lse), gpu().host(r.dq), gpu().host(r.dk), gpu().host(r.dv)};
  }
};

// The tolerances are explained at AttentionTwins.TensorCoresNearFp64: probabilities and
// gradients of scores are rounded to the narrow type before they are multiplied. With groups
// of heads, each head's gradient of keys and values is rounded before the group's are summed.
TEST_F(CudnnTwins, NearFp64) {
  const Case cases[] = {
      {2, 63, 2, 2, 64}, {1, 65, 4, 2, 64}, {1, 130, 2, 1, 128}, {3, 2, 1, 1, 8}, {1, 40, 3, 3, 80}, {1, 70, 2, 1, 96, false},
  };
  for (size_t i = 0; i < 2 * std::size(cases); ++i) {
    const Case& c = cases[i / 2];
    const DType dtype = i % 2 == 0 ? DType::bf16 : DType::f16;
    const double u = test::half_ulp(dtype);
    const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
    const Inputs in = inputs(c, dtype), exact_in = {wide(in.q), wide(in.k), wide(in.v), wide(in.dout)};
    const Results got = on_gpu(c, in), exact = run(c, exact_in, AttentionLibrary::own),
                  after = run(c, exact_in, AttentionLibrary::own, {wide(got.out), wide(got.lse), {}, {}, {}});
    const double f32 = 10 * test::half_ulp(DType::f32) * (std::sqrt(static_cast<double>(c.width)) + 4);
    const double floor = f32 * static_cast<double>(c.width), group = c.heads == c.kv_heads ? 0 : 2 * u;
    test::expect_near(got.lse, exact.lse, f32, f32, c.name() + " lse");
    expect_rows_near(got.out, exact.out, 3 * u, floor, c.name() + " out");
    expect_rows_near(got.dq, after.dq, 3 * u, floor, c.name() + " dq");
    expect_rows_near(got.dk, after.dk, 3 * u + group, floor, c.name() + " dk");
    expect_rows_near(got.dv, after.dv, 3 * u + group, floor, c.name() + " dv");
  }
}

TEST_F(CudnnTwins, TheSameBitsAgainAndAsThirdsOfOneTensor) {
  const Case c{2, 70, 2, 2, 64};
  const Inputs in = inputs(c, DType::bf16);
  for (const bool thirds : {false, true})
    gpu().run([&] { return kernels::prepare_attention({c.batch, c.length, c.heads, c.kv_heads, c.width, DType::bf16, thirds}); });
  const Emulated no_more("refusing");  // cuDNN offers no engine from now on, so only plans made before can run
  const Results once = on_gpu(c, in), again = on_gpu(c, in);
  for (Tensor Results::*one : {&Results::out, &Results::lse, &Results::dq, &Results::dk, &Results::dv})
    EXPECT_TRUE(test::same_bits(once.*one, again.*one));
  // GPT-2's layout has q, k and v of one token adjacent in memory.
  const Tensor all = empty({c.batch, c.length, 3 * c.heads, c.width}, DType::bf16);
  const auto third = [&](const Tensor& t, i64 n) { return t.slice(2, n * c.heads, (n + 1) * c.heads); };
  const i64 row = c.heads * c.width * 2;
  const Tensor* const parts[] = {&in.q, &in.k, &in.v};
  for (i64 n = 0; n < 3; ++n) {
    for (i64 r = 0; r < c.batch * c.length; ++r)
      std::memcpy(all.raw() + (3 * r + n) * row, parts[n]->raw() + r * row, static_cast<size_t>(row));
  }
  const Tensor packed = gpu()(all), gradient = gpu().empty(all.shape(), DType::bf16);
  const auto [out, lse] = gpu().run([&] {
    const Tensor o = empty(c.q(), DType::bf16), l = empty({c.batch, c.heads, c.length}, DType::f32);
    const auto mask = c.mask(AttentionLibrary::cudnn);
    kernels::attention(third(packed, 0), third(packed, 1), third(packed, 2), mask, o, l,
                       bytes(kernels::attention_workspace_bytes(c.q(), c.k(), DType::bf16, mask.library)));
    kernels::attention_gradient(third(packed, 0), third(packed, 1), third(packed, 2), o, l, gpu()(in.dout), mask, third(gradient, 0),
                                third(gradient, 1), third(gradient, 2),
                                bytes(kernels::attention_gradient_workspace_bytes(c.q(), c.k(), DType::bf16, mask.library)));
    return std::pair(o, l);
  });
  EXPECT_TRUE(test::same_bits(gpu().host(out), once.out) && test::same_bits(gpu().host(lse), once.lse));
  const Tensor got = gpu().host(gradient), *const wanted[] = {&once.dq, &once.dk, &once.dv};
  for (i64 n = 0; n < 3; ++n) {
    for (i64 r = 0; r < c.batch * c.length; ++r)
      ASSERT_EQ(std::memcmp(got.raw() + (3 * r + n) * row, wanted[n]->raw() + r * row, static_cast<size_t>(row)), 0) << n << " " << r;
  }
}

// Our own kernels compute a single query, and head widths and types that cuDNN does not support. The results must be bitwise those of our
// kernels.
TEST_F(CudnnTwins, WhatItDoesNotTakeIsOurs) {
  for (const Case& c : {Case{1, 1, 1, 1, 64}, Case{1, 9, 2, 2, 12}, Case{1, 9, 1, 1, 136}}) {
    const Inputs in = inputs(c, DType::bf16);
    EXPECT_TRUE(test::same_bits(on_gpu(c, in).dk, on_gpu(c, in, AttentionLibrary::own).dk)) << c.name();
  }
  const Case c{1, 9, 2, 2, 64};
  EXPECT_TRUE(test::same_bits(on_gpu(c, inputs(c, DType::f32)).out, on_gpu(c, inputs(c, DType::f32), AttentionLibrary::own).out));
}

TEST_F(CudnnTwins, EnginesOfARecordAreTakenUpWhereItIsOfThisVersionAndGpu) {
  if (!is_emulated()) GTEST_SKIP() << "needs emulated GPUs";
  const auto prepare = [&](i64 length, const std::string& chosen) {
    return gpu().run([&] { return kernels::prepare_attention({1, length, 2, 2, 64, DType::bf16}, chosen); });
  };
  const std::string record = prepare(16, "");
  EXPECT_EQ(record, "cuDNN 9.19.0 on compute capability 9.0 with 4 SMs, forward engine 2 k24=7, backward engine 6 k24=26");
  const Emulated other("reversed");
  const std::string reversed = "cuDNN 9.19.0 on compute capability 9.0 with 4 SMs, forward engine 1 k24=6, backward engine 7 k24=26";
  EXPECT_EQ(prepare(32, ""), reversed);
  EXPECT_EQ(prepare(48, "NVIDIA H100, " + record), record);
  EXPECT_EQ(prepare(64, "cuDNN 9.18.1 on compute capability 9.0 with 4 SMs, forward engine 2 k24=7, backward engine 6 k24=26"), reversed);
  // A plan that was made with other engines than the record of chosen engines names is replaced.
  const Case c{1, 32, 2, 2, 64};
  const Inputs in = inputs(c, DType::bf16);
  const Results before = on_gpu(c, in);
  EXPECT_EQ(prepare(32, record), record);
  EXPECT_FALSE(test::same_bits(on_gpu(c, in).dq, before.dq)) << "other engines sum in another order";
}

TEST_F(CudnnTwins, MoreWorkspaceThanPlansCountIsRefusedWithTheNumbers) {
  if (!is_emulated()) GTEST_SKIP() << "needs emulated GPUs";
  const Emulated large("large");
  try {
    gpu().run([&] { return kernels::prepare_attention({4, 20, 2, 2, 64, DType::bf16}); });
    FAIL() << "expected it to be refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::refused);
    EXPECT_EQ(std::string(e.what()),
              "[attention] expected cuDNN 9.19.0 to need at most 4.00 KiB of workspace, the amount in the memory plan, got 1.00 MiB for "
              "forward bf16 "
              "4 x 20 x 2/2 x 64 causal: use another version of cuDNN or leave out --attention cudnn");
  }
}

TEST(Cudnn, WhereItIsMissingOrTooOldIsOneLine) {
  try {
    cudnn::open({"libnowhere.so.9", "/nowhere/libcudnn.so.9"});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    const std::string said = e.what();
    EXPECT_TRUE(said.starts_with("[attention] expected cuDNN for --attention cudnn, got none (libnowhere.so.9: ")) << said;
    EXPECT_NE(said.find("/nowhere/libcudnn.so.9: file not found): install cuDNN 9.15.1 or newer (pip install nvidia-cudnn-cu13"), said.npos)
        << said;
    EXPECT_EQ(said.find('\n'), said.npos);
  }
  cudnn::Library old;
  old.version = [] { return size_t{91500}; };
  EXPECT_TRUE(cudnn::too_old(old).starts_with("[attention] expected cuDNN 9.15.1 or newer, got 9.15.0: install")) << cudnn::too_old(old);
  old.version = [] { return size_t{91501}; };
  EXPECT_EQ(cudnn::too_old(old), "");
}

TEST(Cudnn, GpusThatHaveNoDeterministicBackwardOfIt) {
  EXPECT_EQ(cudnn::why_not_on(80, 92800), "expected a GPU of compute capability 9.0 (Hopper) or newer, got 8.0");
  EXPECT_EQ(cudnn::why_not_on(90, 91501), "");
  EXPECT_EQ(cudnn::why_not_on(100, 91800), "");
  EXPECT_EQ(cudnn::why_not_on(103, 91701), "expected cuDNN 9.18.0 or newer for a GPU of compute capability 10.3, got 9.17.1");
  EXPECT_EQ(cudnn::why_not_on(120, 92800),
            "expected a GPU of compute capability 9.x or 10.x, on which cuDNN's backward is deterministic, got 12.0");
}

TEST(Cudnn, EnginesAsText) {
  const cudnn::Engine engine{6, {{24, 26}, {14, -1}}};
  EXPECT_EQ(to_string(engine), "engine 6 k24=26 k14=-1");
  EXPECT_EQ(cudnn::parse_engine("engine 6 k24=26 k14=-1"), engine);
  for (const char* wrong : {"", "engine", "engine x", "engine 6 k24", "engine 6k24=1", "engine 6 k24=1;"})
    EXPECT_FALSE(cudnn::parse_engine(wrong)) << wrong;
}

TEST(Cudnn, FindsTheWheelOfAnEnvironment) {
  const test::TemporaryFolder environment;
  const std::string library = environment.write("lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9", "");
  ::setenv("VIRTUAL_ENV", environment.path().c_str(), 1);
  const std::vector<std::string> names = cudnn::library_names();
  ::unsetenv("VIRTUAL_ENV");
  EXPECT_EQ(names[0], "libcudnn.so.9");
  EXPECT_EQ(names[1], library);
}

#ifdef CUDNN_GRAPH_MAJOR
TEST(Cudnn, ItsHeaderHasTheSameNumbers) {
  using namespace cudnn;
  const auto same = [](auto ours, auto theirs) { EXPECT_EQ(static_cast<int>(ours), static_cast<int>(theirs)); };
  same(Kind::pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), same(Kind::engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  same(Kind::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), same(Kind::engine_heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  same(Kind::execution_plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), same(Kind::knob_choice, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  same(Kind::operation_pointwise, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  same(Kind::operation_graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), same(Kind::variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  same(Kind::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR), same(Kind::matmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  same(Kind::operation_matmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR), same(Kind::reduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  same(Kind::operation_reduction, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  same(Kind::operation_reshape, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  same(Kind::device_properties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);

  same(Attribute::pointwise_mode, CUDNN_ATTR_POINTWISE_MODE), same(Attribute::pointwise_math_precision, CUDNN_ATTR_POINTWISE_MATH_PREC);
  same(Attribute::pointwise_axis, CUDNN_ATTR_POINTWISE_AXIS), same(Attribute::heuristics_mode, CUDNN_ATTR_ENGINEHEUR_MODE);
  same(Attribute::heuristics_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  same(Attribute::heuristics_results, CUDNN_ATTR_ENGINEHEUR_RESULTS), same(Attribute::heuristics_device, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  same(Attribute::config_engine, CUDNN_ATTR_ENGINECFG_ENGINE), same(Attribute::config_knob_choices, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  same(Attribute::config_workspace_bytes, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
  same(Attribute::plan_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  same(Attribute::plan_workspace_bytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  same(Attribute::knob_type, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE), same(Attribute::knob_value, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  same(Attribute::operation_pointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  same(Attribute::operation_pointwise_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  same(Attribute::operation_pointwise_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  same(Attribute::operation_pointwise_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  same(Attribute::operation_pointwise_t, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  same(Attribute::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS), same(Attribute::tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  same(Attribute::tensor_type, CUDNN_ATTR_TENSOR_DATA_TYPE), same(Attribute::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
  same(Attribute::tensor_strides, CUDNN_ATTR_TENSOR_STRIDES), same(Attribute::tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  same(Attribute::tensor_is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL), same(Attribute::tensor_is_by_value, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  same(Attribute::pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), same(Attribute::pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  same(Attribute::pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), same(Attribute::engine_graph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  same(Attribute::engine_index, CUDNN_ATTR_ENGINE_GLOBAL_INDEX), same(Attribute::engine_device, CUDNN_ATTR_ENGINE_DEVICEPROP);
  same(Attribute::matmul_type, CUDNN_ATTR_MATMUL_COMP_TYPE), same(Attribute::operation_matmul_a, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  same(Attribute::operation_matmul_b, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  same(Attribute::operation_matmul_c, CUDNN_ATTR_OPERATION_MATMUL_CDESC),
      same(Attribute::operation_matmul, CUDNN_ATTR_OPERATION_MATMUL_DESC);
  same(Attribute::reduction_operator, CUDNN_ATTR_REDUCTION_OPERATOR), same(Attribute::reduction_type, CUDNN_ATTR_REDUCTION_COMP_TYPE);
  same(Attribute::operation_reduction_x, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  same(Attribute::operation_reduction_y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  same(Attribute::operation_reduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  same(Attribute::operation_reshape_x, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  same(Attribute::operation_reshape_y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  same(Attribute::device_json, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);

  same(Type::handle, CUDNN_TYPE_HANDLE), same(Type::data_type, CUDNN_TYPE_DATA_TYPE), same(Type::boolean, CUDNN_TYPE_BOOLEAN);
  same(Type::int64, CUDNN_TYPE_INT64), same(Type::pointer, CUDNN_TYPE_VOID_PTR), same(Type::heuristics_mode, CUDNN_TYPE_HEUR_MODE);
  same(Type::knob_type, CUDNN_TYPE_KNOB_TYPE), same(Type::pointwise_mode, CUDNN_TYPE_POINTWISE_MODE);
  same(Type::descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR), same(Type::reduction_operator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
  same(Type::character, CUDNN_TYPE_CHAR);
  same(Data::f32, CUDNN_DATA_FLOAT), same(Data::f16, CUDNN_DATA_HALF), same(Data::int32, CUDNN_DATA_INT32);
  same(Data::bf16, CUDNN_DATA_BFLOAT16), same(Data::boolean, CUDNN_DATA_BOOLEAN);
  same(Pointwise::add, CUDNN_POINTWISE_ADD), same(Pointwise::mul, CUDNN_POINTWISE_MUL), same(Pointwise::div, CUDNN_POINTWISE_DIV);
  same(Pointwise::sub, CUDNN_POINTWISE_SUB), same(Pointwise::exp, CUDNN_POINTWISE_EXP), same(Pointwise::log, CUDNN_POINTWISE_LOG);
  same(Pointwise::greater_equal, CUDNN_POINTWISE_CMP_GE), same(Pointwise::index, CUDNN_POINTWISE_GEN_INDEX);
  same(Pointwise::select, CUDNN_POINTWISE_BINARY_SELECT), same(Reduce::add, CUDNN_REDUCE_TENSOR_ADD);
  same(Reduce::max, CUDNN_REDUCE_TENSOR_MAX), same(Heuristics::a, CUDNN_HEUR_MODE_A), same(kSuccess, CUDNN_STATUS_SUCCESS);
}
#endif

}  // namespace
}  // namespace spillway::cudnn_cuda_test
