#include "data/weights/torch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include "base/error.h"
#include "data/pickle/pickle.h"
#include "data/weights/torch_archive.h"
#include "data/wide.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

constexpr int kMostDepth = 8;     // of dictionaries in dictionaries
constexpr size_t kMostAxes = 64;  // PyTorch's own
constexpr size_t kMostTensors = size_t{1} << 20;

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

constexpr std::string_view kRebuild = "torch._utils._rebuild_tensor_v2", kParameter = "torch._utils._rebuild_parameter";

bool belongs_to_tensors(const std::string& global) {
  if (global == kRebuild || global == kParameter || global == "collections.OrderedDict" || global == "torch.Size") return true;
  return std::ranges::find(kStorages, global, &StorageType::name) != std::end(kStorages);
}

// Where a tensor's elements lie in its storage.
struct Layout {
  TorchArchive::Member member;
  i64 offset = 0;  // elements
  std::vector<i64> sizes, strides;
};

class Tensors {
 public:
  Tensors(const Pickle& pickle, const TorchArchive& archive) : pickle_(pickle), archive_(archive) {
    for (const PickleNode& node : pickle.nodes()) {
      if (node.kind == Kind::global && !belongs_to_tensors(node.text))
        reject_torch(archive.path(),
                     fmt::format("it asks for {}, which is no part of a tensor (nothing of it was run): save the state_dict "
                                 "alone, or as safetensors",
                                 node.text));
    }
    const PickleNode& root = pickle.at(pickle.root());
    if (root.kind != Kind::dict && !is_ordered_dict(root))
      reject_torch(archive.path(), "expected a dictionary of tensors: save a state_dict");
    over(root, "", 0);
  }

  std::vector<TensorInfo> infos;
  std::vector<Layout> layouts;

 private:
  [[noreturn]] void wrong(const std::string& tensor, const std::string& why) const {
    reject_torch(archive_.path(), fmt::format("tensor {}: {}", tensor, why));
  }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }
  bool calls(const PickleNode& node, std::string_view global) const {
    return node.kind == Kind::object && at(node.items[0]).kind == Kind::global && at(node.items[0]).text == global;
  }
  bool is_ordered_dict(const PickleNode& node) const { return calls(node, "collections.OrderedDict"); }
  const PickleNode& argument(const PickleNode& call, size_t index, const std::string& tensor) const {
    const PickleNode& arguments = at(call.items[1]);
    if (arguments.kind != Kind::tuple || arguments.items.size() <= index) wrong(tensor, "it is made of too few values");
    return at(arguments.items[index]);
  }

  void over(const PickleNode& dictionary, const std::string& prefix, int depth) {
    const auto& entries = dictionary.kind == Kind::dict ? dictionary.items : dictionary.entries;
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode &key = at(entries[i]), &value = at(entries[i + 1]);
      if (key.kind != Kind::text) continue;
      const std::string name = prefix + key.text;
      if (value.kind == Kind::dict || is_ordered_dict(value)) {
        if (depth == kMostDepth || ++visits_ > kMostTensors) reject_torch(archive_.path(), "its dictionaries nest too deeply");
        over(value, name + ".", depth + 1);
      } else if (calls(value, kParameter)) {
        one(name, argument(value, 0, name));
      } else {
        one(name, value);
      }
    }
  }

  i64 size(const PickleNode& node, const std::string& tensor) const {
    if (node.kind != Kind::integer || node.integer < 0 || !node.text.empty())
      wrong(tensor, "expected sizes, strides and an offset of 0 or more");
    return node.integer;
  }
  std::vector<i64> sizes(const PickleNode& node, const std::string& tensor) const {
    if (node.kind != Kind::tuple || node.items.size() > kMostAxes) wrong(tensor, "expected a tuple of sizes");
    std::vector<i64> all;
    for (const PickleRef ref : node.items) all.push_back(size(at(ref), tensor));
    return all;
  }

  void one(const std::string& name, const PickleNode& node) {
    if (!calls(node, kRebuild)) return;  // a number, a text
    if (infos.size() == kMostTensors) reject_torch(archive_.path(), fmt::format("expected at most {} tensors", kMostTensors));
    const PickleNode& persistent = argument(node, 0, name);
    if (persistent.kind != Kind::persistent) wrong(name, "expected a storage");
    const PickleNode& storage = at(persistent.items[0]);
    if (storage.kind != Kind::tuple || storage.items.size() < 5 || at(storage.items[0]).text != "storage" ||
        at(storage.items[2]).kind != Kind::text)
      wrong(name, "expected a storage's type, key and size");
    const auto type = std::ranges::find(kStorages, at(storage.items[1]).text, &StorageType::name);
    if (type == std::end(kStorages)) wrong(name, "expected the type of its storage");
    Layout layout{archive_.storage(at(storage.items[2]).text), size(argument(node, 1, name), name), sizes(argument(node, 2, name), name),
                  sizes(argument(node, 3, name), name)};
    if (layout.sizes.size() != layout.strides.size()) wrong(name, "expected a stride for each size");
    const i64 elems = elems_within(layout, name, layout.member.bytes / size_of(type->dtype));
    TensorInfo info{.name = name, .dtype = type->dtype, .end = elems * size_of(type->dtype)};
    if (layout.sizes.size() <= static_cast<size_t>(Shape::kMaxRank) && type->foreign.empty()) {
      info.shape = Shape(std::span<const i64>(layout.sizes));
    } else {
      info.foreign = fmt::format("{} [{}]", type->foreign.empty() ? to_string(type->dtype) : type->foreign, fmt::join(layout.sizes, ", "));
      info.dtype = DType::uint8;
      info.shape = {info.end};
    }
    infos.push_back(std::move(info));
    layouts.push_back(std::move(layout));
  }

  // How many it has; its last element lies within the storage.
  i64 elems_within(const Layout& layout, const std::string& tensor, i64 storage_elems) const {
    i64 elems = 1, last = layout.offset;
    bool fits = true;
    for (size_t axis = 0; axis < layout.sizes.size(); ++axis) {
      i64 reach = 0;
      fits = fits && !__builtin_mul_overflow(elems, layout.sizes[axis], &elems);
      fits = fits && !__builtin_mul_overflow(std::max<i64>(layout.sizes[axis] - 1, 0), layout.strides[axis], &reach);
      fits = fits && !__builtin_add_overflow(last, reach, &last);
    }
    if (!fits || (elems > 0 && last >= storage_elems) || elems > std::numeric_limits<i64>::max() / 16)
      wrong(tensor, fmt::format("its elements leave its storage of {} elements", storage_elems));
    return elems;
  }

  const Pickle& pickle_;
  const TorchArchive& archive_;
  size_t visits_ = 0;
};

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  std::array<char, 4> first{};
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), first.size()) && std::string_view(first.data(), first.size()) == "PK\3\4";
}

struct TorchFile::State {
  explicit State(const std::filesystem::path& path) : archive(path) {
    const std::vector<std::byte> bytes = archive.pickle();
    const Pickle pickle(bytes, path.string() + ", data.pkl");
    Tensors found(pickle, archive);
    infos = std::move(found.infos);
    layouts = std::move(found.layouts);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!by_name.emplace(infos[i].name, i).second) reject_torch(path, "it has two tensors " + infos[i].name);
    }
  }
  TorchArchive archive;
  std::vector<TensorInfo> infos;
  std::vector<Layout> layouts;
  std::map<std::string, size_t> by_name;
};

TorchFile::TorchFile(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
TorchFile::TorchFile(TorchFile&&) noexcept = default;
TorchFile::~TorchFile() = default;

const std::vector<TensorInfo>& TorchFile::tensors() const { return state_->infos; }

const TensorInfo* TorchFile::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->infos[found->second];
}

// Runs of elements that lie behind each other: as many as the last axes have that do, within one piece.
void TorchFile::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  const Layout& layout = state_->layouts[state_->by_name.at(tensor.name)];
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype))
    reject_torch(state_->archive.path(), fmt::format("tensor {}: expected floating-point numbers", tensor.name));
  size_t inner = layout.sizes.size();  // axes from here on are contiguous
  i64 run = 1;
  while (inner > 0 && (layout.strides[inner - 1] == run || layout.sizes[inner - 1] == 1)) run *= layout.sizes[--inner];
  std::array<std::byte, 32768> raw;  // on the stack: a training run may read weights while its memory is all planned
  const i64 width = size_of(tensor.dtype), most = static_cast<i64>(raw.size()) / width, count = static_cast<i64>(out.size());
  for (i64 at = 0; at < count;) {
    const i64 in_run = (begin + at) % run, elems = std::min({most, count - at, run - in_run});
    i64 place = layout.offset + in_run, rest = (begin + at) / run;
    for (size_t axis = inner; axis-- > 0; rest /= layout.sizes[axis]) place += rest % layout.sizes[axis] * layout.strides[axis];
    const auto piece = std::span(raw).first(static_cast<size_t>(elems * width));
    state_->archive.read(layout.member, place * width, piece);
    for (i64 i = 0; i < elems; ++i) out[static_cast<size_t>(at + i)] = widened(raw.data() + i * width, tensor.dtype);
    at += elems;
  }
}

}  // namespace spillway::data
