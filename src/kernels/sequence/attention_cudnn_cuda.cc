#include "kernels/sequence/attention_cudnn_cuda.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/units.h"
#include "device/cuda_handle.h"
#include "device/stream.h"
#include "kernels/sequence/attention_library.h"
#include "kernels/sequence/cudnn_graph_cuda.h"

namespace spillway::kernels {
namespace attention_cudnn {
namespace {

using cudnn::Attribute;
using cudnn::Descriptor;
using cudnn::Engine;
using cudnn::Id;
using cudnn::Kind;
using cudnn::Layouts;
using cudnn::Problem;
using cudnn::Strides;
using cudnn::Type;

struct Gpu {
  cudnn::Target target;
  int multiprocessors = 0;
};

struct Plan {
  Engine engine;
  Descriptor plan;
  i64 workspace_bytes;
};

void require_room(i64 wanted, i64 there, const Problem& problem) {
  if (wanted <= there) return;
  throw Error(ErrorCode::refused, fmt::format("[attention] expected cuDNN {} to need at most {} of workspace, the amount in the memory "
                                              "plan, got {} for {}: use another version of cuDNN or leave out --attention cudnn",
                                              cudnn::version_text(cudnn::library().version_number()), format_bytes(there),
                                              format_bytes(wanted), to_string(problem)));
}

// Makes a plan with the engine `chosen`. If `chosen` is null, tries the engines of the graph and uses the first one that works.
Plan make_plan(const Gpu& gpu, const Problem& problem, const Layouts& layouts, const Engine* chosen) {
  const cudnn::Graph graph(problem, layouts, gpu.target);
  for (const Engine& engine : chosen ? std::vector<Engine>{*chosen} : graph.engines()) {
    const std::optional<Descriptor> config = graph.config(engine);
    if (!config) continue;
    Descriptor plan(Kind::execution_plan);
    plan.set_handle(Attribute::plan_handle, gpu.target.handle);
    plan.set(Attribute::plan_config, *config);
    if (!plan.try_finalize()) continue;
    const i64 bytes = plan.number(Attribute::plan_workspace_bytes);
    require_room(bytes + delta_bytes(problem), workspace_bound(problem), problem);
    return {engine, std::move(plan), bytes};
  }
  char said[2048] = "";
  cudnn::library().last_error(said, sizeof said);
  throw Error(ErrorCode::io,
              fmt::format("[attention] expected cuDNN {} to provide {} for {}, got none: leave out --attention cudnn ({})",
                          cudnn::version_text(cudnn::library().version_number()), chosen ? to_string(*chosen) : std::string("an engine"),
                          to_string(problem), std::string_view(said).substr(0, std::string_view(said).find('\n'))));
}

// The plans that the process keeps. They are never destroyed, because CUDA may already be shut down when the process ends.
struct Memo {
  std::mutex mutex;
  std::map<int, Gpu> gpus;
  // the engine for each GPU and problem; an engine serves all memory layouts of its problem
  std::map<std::pair<int, Problem>, Engine> chosen;
  std::map<std::tuple<int, Problem, Layouts>, Plan> plans;

  static Memo& of_process() {
    static Memo& one = *new Memo;
    return one;
  }
  const Gpu& gpu(int index) {
    if (const auto known = gpus.find(index); known != gpus.end()) return known->second;
    int current = -1;
    cuda_check(cudaGetDevice(&current), "cudaGetDevice");
    require(current == index, "[attention] expected the GPU of the current stream to be the current GPU of this thread");
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    Gpu one{{properties.major * 10 + properties.minor}, properties.multiProcessorCount};
    cudnn::check(cudnn::library().create(&one.target.handle), "cudnnCreate");
    return gpus[index] = one;
  }
  const Plan& plan(int index, const Problem& problem, const Layouts& layouts) {
    const auto key = std::tuple(index, problem, layouts);
    if (const auto known = plans.find(key); known != plans.end()) return known->second;
    const auto wanted = chosen.find({index, problem});
    const Plan& made =
        plans.emplace(key, make_plan(gpu(index), problem, layouts, wanted == chosen.end() ? nullptr : &wanted->second)).first->second;
    chosen.emplace(std::pair(index, problem), made.engine);
    return made;
  }
  void choose(int index, const Problem& problem, const Engine& engine) {
    const auto [at, is_new] = chosen.emplace(std::pair(index, problem), engine);
    if (is_new || at->second == engine) return;
    at->second = engine;
    std::erase_if(plans, [&](const auto& one) { return std::get<0>(one.first) == index && std::get<1>(one.first) == problem; });
  }
};

Problem problem_of(const Shape& q, const Shape& k, DType dtype, bool causal, bool backward) {
  return {q[0], q[1], q[2], k[2], q[3], dtype, causal, backward};
}
Problem problem_of(const Tensor& q, const Tensor& k, bool causal, bool backward) {
  return problem_of(q.shape(), k.shape(), q.dtype(), causal, backward);
}
Strides strides_of(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

class Pack {
 public:
  void add(Id id, const void* at) {
    require(reinterpret_cast<std::uintptr_t>(at) % 16 == 0 || is_number(id),
            "[attention] expected tensors for cuDNN at addresses that are multiples of 16 bytes");
    ids_.push_back(static_cast<i64>(id));
    pointers_.push_back(at);
  }
  void add(Id id, const Tensor& t) { add(id, t.raw()); }
  // Executes the plan on the current stream's queue.
  void run(const Problem& problem, const Layouts& layouts, std::byte* workspace) {
    const Stream& stream = Stream::current();
    Memo& memo = Memo::of_process();
    const std::lock_guard lock(memo.mutex);
    const Plan& plan = memo.plan(stream.device.index, problem, layouts);
    const Descriptor pack(Kind::variant_pack);
    pack.set(Attribute::pack_ids, ids_);
    pack.set(Attribute::pack_pointers, Type::pointer, static_cast<i64>(pointers_.size()), pointers_.data());
    pack.set(Attribute::pack_workspace, Type::pointer, 1, &workspace);
    pack.finalize();
    const cudnn::Handle handle = memo.gpu(stream.device.index).target.handle;
    cudnn::check(cudnn::library().set_stream(handle, stream.queue), "cudnnSetStream");
    cudnn::check(cudnn::library().execute(handle, plan.plan.raw(), pack.raw()), "cudnnBackendExecute");
  }

 private:
  static bool is_number(Id id) { return id == Id::scale || id == Id::lowest || id == Id::one; }
  std::vector<i64> ids_;
  std::vector<const void*> pointers_;
};

constexpr float kLowest = -std::numeric_limits<float>::infinity(), kOne = 1;

}  // namespace

bool takes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library) {
  return library == AttentionLibrary::cudnn && is_half(dtype) && q[1] == k[1] && q[1] > 1 && q[3] % 8 == 0 && q[3] <= 128;
}

i64 workspace_bytes(const Shape& q, const Shape& k, DType dtype) { return workspace_bound(problem_of(q, k, dtype, true, false)); }
i64 gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype) { return workspace_bound(problem_of(q, k, dtype, true, true)); }

void attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
            const Tensor& workspace) {
  const auto scale = static_cast<float>(mask.scale);
  Pack pack;
  pack.add(Id::q, q), pack.add(Id::k, k), pack.add(Id::v, v), pack.add(Id::out, out), pack.add(Id::lse, lse), pack.add(Id::scale, &scale);
  if (mask.causal) pack.add(Id::lowest, &kLowest);
  pack.run(problem_of(q, k, mask.causal, false), {strides_of(q), strides_of(k), strides_of(v), strides_of(out), {}, {}, {}, {}},
           workspace.raw());
}

void gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
               const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace) {
  const auto scale = static_cast<float>(mask.scale);
  const Problem problem = problem_of(q, k, mask.causal, true);
  Pack pack;
  pack.add(Id::q, q), pack.add(Id::k, k), pack.add(Id::v, v), pack.add(Id::out, out), pack.add(Id::lse, lse), pack.add(Id::dout, dout);
  pack.add(Id::dq, dq), pack.add(Id::dk, dk), pack.add(Id::dv, dv), pack.add(Id::delta, workspace.raw());
  pack.add(Id::scale, &scale), pack.add(Id::one, &kOne);
  if (mask.causal) pack.add(Id::lowest, &kLowest);
  pack.run(problem,
           {strides_of(q), strides_of(k), strides_of(v), strides_of(out), strides_of(dout), strides_of(dq), strides_of(dk), strides_of(dv)},
           workspace.raw() + delta_bytes(problem));
}

}  // namespace attention_cudnn

namespace {

using namespace attention_cudnn;

cudnn::Problem problem_of(const AttentionShape& s, bool backward) {
  return {s.batch, s.length, s.heads, s.kv_heads, s.width, s.dtype, s.causal, backward};
}

// Finds the text `before` in a record, and parses the engine between it and the next comma.
std::optional<Engine> engine_in(std::string_view record, std::string_view before) {
  const size_t at = record.find(before);
  if (at == record.npos) return {};
  record.remove_prefix(at + before.size());
  return cudnn::parse_engine(record.substr(0, record.find(',')));
}

}  // namespace

std::string missing_attention_library(int compute_capability) {
  try {
    if (std::string old = cudnn::too_old(cudnn::library()); !old.empty()) return old;
    const std::string why = cudnn::why_not_on(compute_capability, cudnn::library().version_number());
    return why.empty() ? "" : fmt::format("[attention] {}: leave out --attention cudnn", why);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string attention_shape_problem(const AttentionShape& s) {
  if (takes({s.batch, s.length, s.heads, s.width}, {s.batch, s.length, s.kv_heads, s.width}, s.dtype, AttentionLibrary::cudnn)) return "";
  if (!is_half(s.dtype)) return fmt::format("expected bf16 or f16, got {}", to_string(s.dtype));
  if (s.length < 2) return fmt::format("expected sequences of at least two tokens, got {}", s.length);
  return fmt::format("expected a head width that is a multiple of 8 and at most 128, got {}", s.width);
}

i64 attention_library_bytes(const AttentionShape& shape) { return workspace_bound(problem_of(shape, true)); }

std::string prepare_attention(const AttentionShape& shape, const std::string& chosen) {
  const int gpu = Stream::current().device.index;
  Memo& memo = Memo::of_process();
  const std::lock_guard lock(memo.mutex);
  const Gpu& here = memo.gpu(gpu);
  std::string record =
      fmt::format("cuDNN {} on compute capability {}.{} with {} SMs", cudnn::version_text(cudnn::library().version_number()),
                  here.target.compute_capability / 10, here.target.compute_capability % 10, here.multiprocessors);
  const bool same = chosen.find(record + ",") != chosen.npos;
  for (const bool backward : {false, true}) {
    const char* before = backward ? ", backward " : ", forward ";
    const Problem problem = problem_of(shape, backward);
    if (const std::optional<Engine> engine = same ? engine_in(chosen, before) : std::nullopt) memo.choose(gpu, problem, *engine);
    record += before + to_string(memo.plan(gpu, problem, shape.thirds ? thirds(problem) : contiguous(problem)).engine);
  }
  return record;
}

}  // namespace spillway::kernels
