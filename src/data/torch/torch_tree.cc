#include "data/torch/torch_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "data/safetensors/element_count.h"
#include "data/safetensors/wide.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

struct StorageType {
  std::string_view name, foreign;
  DType dtype;
};
constexpr StorageType kStorages[] = {
    {"torch.FloatStorage", "", DType::f32},     {"torch.DoubleStorage", "", DType::f64},   {"torch.HalfStorage", "", DType::f16},
    {"torch.BFloat16Storage", "", DType::bf16}, {"torch.IntStorage", "", DType::int32},    {"torch.LongStorage", "", DType::int64},
    {"torch.ByteStorage", "", DType::uint8},    {"torch.BoolStorage", "", DType::boolean}, {"torch.CharStorage", "I8", DType::uint8},
    {"torch.ShortStorage", "I16", DType::f16},
};

constexpr std::string_view kRebuild = "torch._utils._rebuild_tensor_v2", kParameter = "torch._utils._rebuild_parameter",
                           kOfType = "torch._tensor._rebuild_from_type_v2";

constexpr i64 kPieceBytes = 32768;
// The limit on a tensor's elements per element of its storage. A tensor may repeat elements of its storage, as PyTorch's expand() does.
constexpr i64 kRepeats = 16;
// The limit on the elements of a tensor that repeats the elements of a small storage (at most kPieceBytes). Reading so many elements
// takes about a second.
constexpr i64 kMostRepeated = i64{1} << 25;
constexpr u64 kTensorSteps = 256;  // the budget steps that are charged for looking up the tensor's storage in the archive
constexpr u64 kTensorNames = 3;    // the number of copies of a tensor's name that its reader keeps

}  // namespace

bool belongs_to_tensors(std::string_view global) {
  for (const std::string_view known : {kRebuild, kParameter, kOrderedDict, kTorchSize}) {
    if (global == known) return true;
  }
  return std::ranges::find(kStorages, global, &StorageType::name) != std::end(kStorages);
}

TensorInfo TorchTensor::info(const std::string& name) const {
  TensorInfo info{.name = name, .dtype = dtype, .end = elems * size_of(dtype)};
  if (sizes.size() <= static_cast<size_t>(Shape::kMaxRank) && foreign.empty()) {
    info.shape = Shape(std::span<const i64>(sizes));
  } else {
    info.foreign = fmt::format("{} [{}]", foreign.empty() ? to_string(dtype) : foreign, fmt::join(sizes, ", "));
    info.dtype = DType::uint8;
    info.shape = {info.end};
  }
  return info;
}

TorchTensor::Run TorchTensor::run() const {
  Run run;
  for (size_t axis = sizes.size(); axis-- > 0 && (strides[axis] == run.elems || sizes[axis] == 1); ++run.axes) run.elems *= sizes[axis];
  return run;
}

// Reads contiguous runs of elements, each as long as the trailing axes and the buffer allow. A storage that
// fits into the buffer is read once as a whole, because the tensor may repeat its elements very often.
void read_wide(const TorchArchive& archive, const TorchTensor& tensor, i64 begin, std::span<double> out) {
  // The buffer is on the stack, not the heap: a training run may read weights when all of its memory is already assigned by the plan.
  std::array<std::byte, kPieceBytes> raw;
  const bool is_small = tensor.storage.bytes <= std::ssize(raw);
  const i64 most_elems = std::max(is_small ? kMostRepeated : 0, kRepeats * tensor.storage_elems());
  if (tensor.elems > most_elems) {
    reject_torch(archive.path(), fmt::format("expected at most {} elements for a weight that repeats the {} elements of its storage, got "
                                             "{}: call .contiguous() before saving",
                                             most_elems, tensor.storage_elems(), tensor.elems));
  }
  const auto [contiguous_axes, run] = tensor.run();
  const size_t inner = tensor.sizes.size() - contiguous_axes;
  const bool is_whole = is_small && run < tensor.elems;
  if (is_whole && !out.empty()) archive.read(tensor.storage, 0, std::span(raw).first(static_cast<size_t>(tensor.storage.bytes)));
  const i64 width = size_of(tensor.dtype), most = std::ssize(raw) / width, count = std::ssize(out);
  for (i64 at = 0; at < count;) {
    const i64 in_run = (begin + at) % run, elems = std::min({most, count - at, run - in_run});
    i64 place = tensor.offset + in_run, rest = (begin + at) / run;
    for (size_t axis = inner; axis-- > 0; rest /= tensor.sizes[axis]) place += rest % tensor.sizes[axis] * tensor.strides[axis];
    const std::byte* from = raw.data() + (is_whole ? place * width : 0);
    if (!is_whole) archive.read(tensor.storage, place * width, std::span(raw).first(static_cast<size_t>(elems * width)));
    widen_stored({from, static_cast<size_t>(elems * width)}, tensor.dtype,
                 out.subspan(static_cast<size_t>(at), static_cast<size_t>(elems)));
    at += elems;
  }
}

TorchTree::TorchTree(const TorchArchive& archive, bool (*known)(std::string_view global), std::string_view cure)
    : PickleTree(archive.pickle(), archive.path(), ", data.pkl", known, cure), archive_(archive) {}

std::optional<TorchTensor> TorchTree::tensor(const PickleNode& node, std::string_view name) const {
  if (calls(node, kRebuild)) return rebuilt(arguments(node), name);
  if (calls(node, kParameter)) {
    const PickleNode& data = argument(arguments(node), 0, name);
    return calls(data, kRebuild) ? std::optional(rebuilt(arguments(data), name)) : std::nullopt;
  }
  if (!calls(node, kOfType)) return {};
  const PickleNode& how = argument(arguments(node), 0, name);
  if (how.kind != Kind::global || text(how) != kRebuild) return {};
  return rebuilt(argument(arguments(node), 2, name), name);
}

TorchTensor TorchTree::rebuilt(const PickleNode& arguments, std::string_view name) const {
  const PickleNode& persistent = argument(arguments, 0, name);
  if (persistent.kind != Kind::persistent) wrong(name, "expected a reference to a storage, got something else");
  const PickleNode& storage = persistent_id(persistent);
  if (storage.kind != Kind::tuple || storage.count < 5 || text(argument(storage, 0, name)) != "storage" ||
      argument(storage, 2, name).kind != Kind::text)
    wrong(name, "expected the type, key and size of its storage, got something else");
  const auto type = std::ranges::find(kStorages, text(argument(storage, 1, name)), &StorageType::name);
  if (type == std::end(kStorages)) wrong(name, "expected a known type of storage, such as torch.FloatStorage, got another");
  const std::string_view key = text(argument(storage, 2, name));
  spend(kTensorSteps + key.size());
  TorchTensor tensor{.storage = archive_.storage(std::string(key)),
                     .dtype = type->dtype,
                     .foreign = type->foreign,
                     .offset = size(argument(arguments, 1, name), name),
                     .sizes = sizes(argument(arguments, 2, name), name),
                     .strides = sizes(argument(arguments, 3, name), name)};
  if (tensor.sizes.size() != tensor.strides.size()) wrong(name, "expected one stride for each size, got another number of strides");
  check_within(tensor, name);
  hold(sizeof(TorchTensor) + sizeof(TensorInfo) + (tensor.sizes.size() + tensor.strides.size()) * sizeof(i64) + kTensorNames * name.size());
  return tensor;
}

// Computes the number of elements of the tensor and checks that its last element lies within the storage.
void TorchTree::check_within(TorchTensor& tensor, std::string_view name) const {
  const std::optional<i64> elems = element_count(tensor.sizes);
  if (!elems) wrong(name, fmt::format("expected at most {} elements, got the sizes [{}]", kMostElements, fmt::join(tensor.sizes, ", ")));
  i64 last = tensor.offset;
  bool fits = true;
  for (size_t axis = 0; axis < tensor.sizes.size(); ++axis) {
    i64 reach = 0;
    fits = fits && !__builtin_mul_overflow(std::max<i64>(tensor.sizes[axis] - 1, 0), tensor.strides[axis], &reach);
    fits = fits && !__builtin_add_overflow(last, reach, &last);
  }
  if (!fits || (*elems > 0 && last >= tensor.storage_elems()))
    wrong(name, fmt::format("its elements reach beyond its storage of {} elements", tensor.storage_elems()));
  tensor.elems = *elems;
}

}  // namespace spillway::data
