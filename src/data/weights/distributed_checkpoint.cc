#include "data/weights/distributed_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "data/file.h"
#include "data/weights/tensor_pieces.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;
using Sizes = std::vector<i64>;

constexpr const char* kMetadata = ".metadata";
constexpr i64 kMostMetadataBytes = 256 * kMiB;
constexpr size_t kMostPieces = size_t{1} << 24;  // of all tensors
constexpr i64 kMostElems = std::numeric_limits<i64>::max() / 64;
constexpr std::string_view kCure = "save the model's state_dict alone";

bool belongs_to_metadata(std::string_view global) {
  constexpr std::string_view kPlain[] = {"pathlib.PosixPath", "pathlib.Path", "builtins.set", "builtins.frozenset"};
  return global.starts_with("torch.") || global.starts_with("collections.") || std::ranges::find(kPlain, global) != std::end(kPlain);
}

// A block of a tensor, and where it lies.
struct Block {
  Sizes offsets, sizes;
};
using Key = std::pair<std::string, Sizes>;  // the tensor's name in the metadata and the block's offsets
struct Place {
  std::string file;
  TorchArchive::Range range;
};

class MetadataReader {
 public:
  MetadataReader(const fs::path& folder, const PickleTree& tree) : folder_(folder), tree_(tree) {}

  void read() {
    read_places();
    const PickleNode* all = tree_.attribute(&tree_.root(), "state_dict_metadata");
    if (all == nullptr || !tree_.is_dictionary(*all)) reject("expected `state_dict_metadata`, a dictionary of tensors");
    const auto entries = tree_.entries(*all);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode& key = tree_.at(entries[i]);
      if (key.kind != Kind::text) reject("expected names in `state_dict_metadata`");
      if (tree_.attribute(&tree_.at(entries[i + 1]), "chunks") == nullptr) continue;  // bytes: a number, a text
      if (const std::string name = name_of(key.text); !name.empty()) one(key.text, name, tree_.at(entries[i + 1]));
    }
    if (infos.empty()) reject("expected the tensors of a model, there are none");
  }

  std::vector<TensorInfo> infos;
  std::vector<Pieces> pieces;
  PieceTensors tensors;

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_torch(tree_.path(), why); }

  std::string text(const PickleNode* node, const char* what) const {
    if (node == nullptr || node->kind != Kind::text) reject(fmt::format("expected {}", what));
    return node->text;
  }
  i64 number(const PickleNode* node, const char* what) const {
    if (node == nullptr || node->kind != Kind::integer || node->integer < 0 || !node->text.empty())
      reject(fmt::format("expected {}", what));
    return node->integer;
  }

  void read_places() {
    const PickleNode* all = tree_.attribute(&tree_.root(), "storage_data");
    const auto entries = all == nullptr ? std::span<const PickleRef>() : tree_.entries(*all);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode &key = tree_.at(entries[i]), &value = tree_.at(entries[i + 1]);
      const PickleNode* offset = tree_.attribute(&key, "offset");
      if (offset == nullptr || offset->kind == Kind::none) continue;  // of bytes
      const std::string name = text(tree_.attribute(&key, "fqn"), "the name of each block's tensor");
      const std::string file = text(tree_.attribute(&value, "relative_path"), "the file of each block");
      if (file.empty() || file == "." || file == ".." || file.find_first_of(std::string("/\0", 2)) != file.npos)
        reject(fmt::format("expected the plain name of a file beside it, got {}", in_quotes(file)));
      const PickleNode* transforms = tree_.attribute(&value, "transform_descriptors");
      if (transforms != nullptr && transforms->kind != Kind::none && !(transforms->kind == Kind::list && transforms->items.empty()))
        reject(fmt::format("{} was transformed when it was written (compressed?): save it without", in_quotes(name)));
      places_[{name, tree_.sizes(*offset, name)}] = {file,
                                                     {number(tree_.attribute(&value, "offset"), "where each block begins"),
                                                      number(tree_.attribute(&value, "length"), "how long each block is")}};
    }
  }

  // What the model calls it; empty: it is the optimizer's. By the path in the saved dictionary, where it is known.
  std::string name_of(const std::string& key) const {
    const PickleNode* path = tree_.find(tree_.attribute(&tree_.root(), "planner_data"), key);
    if (path == nullptr || path->kind != Kind::tuple || path->items.empty()) return key.starts_with("optim") ? "" : key;
    for (size_t i = 0; i + 1 < path->items.size(); ++i) {
      if (tree_.at(path->items[i]).text.starts_with("optim")) return "";
    }
    return tree_.at(path->items.back()).text;
  }

  void one(const std::string& key, const std::string& name, const PickleNode& metadata) {
    const PickleNode *size = tree_.attribute(&metadata, "size"), *chunks = tree_.attribute(&metadata, "chunks");
    if (size == nullptr || chunks->kind != Kind::list) reject(fmt::format("tensor {}: expected its size and blocks", in_quotes(name)));
    TorchTensor whole;
    whole.sizes = tree_.sizes(*size, name);
    whole.elems = 1;
    for (const i64 axis : whole.sizes) {
      if (__builtin_mul_overflow(whole.elems, axis, &whole.elems) || whole.elems > kMostElems)
        reject(fmt::format("tensor {}: its size has too many elements", in_quotes(name)));
    }
    Pieces all;
    bool is_first = true;
    for (const PickleRef ref : chunks->items) {
      const PickleNode *offsets = tree_.attribute(&tree_.at(ref), "offsets"), *sizes = tree_.attribute(&tree_.at(ref), "sizes");
      if (offsets == nullptr || sizes == nullptr)
        reject(fmt::format("tensor {}: expected offsets and sizes of each block", in_quotes(name)));
      const Block block{tree_.sizes(*offsets, name), tree_.sizes(*sizes, name)};
      const TorchTensor stored = stored_block(key, block);
      if (!is_first && (stored.dtype != whole.dtype || stored.foreign != whole.foreign))
        reject(fmt::format("tensor {}: its blocks are of different types", in_quotes(name)));
      whole.dtype = stored.dtype;
      whole.foreign = stored.foreign;
      is_first = false;
      cut(name, whole, block, all);
    }
    std::ranges::sort(all, {}, &TensorPiece::at);
    i64 end = 0;
    for (const TensorPiece& piece : all) {
      if (piece.at != end)
        reject(fmt::format("tensor {}: its blocks overlap or leave something out at element {}", in_quotes(name), std::min(end, piece.at)));
      end += piece.elems;
    }
    if (end != whole.elems) reject(fmt::format("tensor {}: its blocks have {} of its {} elements", in_quotes(name), end, whole.elems));
    infos.push_back(whole.info(name));
    pieces.push_back(std::move(all));
  }

  TorchTensor stored_block(const std::string& key, const Block& block) {
    const auto place = places_.find({key, block.offsets});
    if (place == places_.end()) reject(fmt::format("a block of {} is in no file", in_quotes(key)));
    const fs::path path = folder_ / place->second.file;
    const size_t file = tensors.archives->add(path, place->second.range);
    const auto archive = tensors.archives->open(file);
    const TorchTree tree(*archive, belongs_to_tensors, kCure);
    auto tensor = tree.tensor(tree.root(), key);
    if (!tensor || tensor->sizes != block.sizes)
      reject_torch(path,
                   fmt::format("expected the block of {} that .metadata says is at byte {}", in_quotes(key), place->second.range.begin));
    tensors.add(file, *tensor);
    return std::move(*tensor);
  }

  // Runs of the block's elements that lie behind each other in the whole, too: of as many of the last axes as it has all of, and one more.
  void cut(const std::string& name, const TorchTensor& whole, const Block& block, Pieces& into) {
    const size_t axes = whole.sizes.size();
    if (block.offsets.size() != axes || block.sizes.size() != axes)
      reject(fmt::format("tensor {}: a block has other axes", in_quotes(name)));
    for (size_t axis = 0; axis < axes; ++axis) {
      if (block.offsets[axis] > whole.sizes[axis] || block.sizes[axis] > whole.sizes[axis] - block.offsets[axis])
        reject(fmt::format("tensor {}: a block leaves it", in_quotes(name)));
    }
    i64 elems = 1, run = 1, outer_runs = 1;
    for (const i64 axis : block.sizes) elems *= axis;
    if (elems == 0) return;
    size_t inner = axes;  // axes from here on are whole, but for the first of them
    while (inner > 0 && (inner == axes || block.sizes[inner] == whole.sizes[inner])) run *= block.sizes[--inner];
    outer_runs = elems / run;
    if (static_cast<u64>(outer_runs) > kMostPieces - pieces_)
      reject("its tensors are cut into too many pieces: save it from ranks that cut the first axis, as FSDP does");
    pieces_ += static_cast<size_t>(outer_runs);
    Sizes index(block.offsets);
    for (i64 i = 0; i < outer_runs; ++i) {
      i64 at = 0;
      for (size_t axis = 0; axis < axes; ++axis) at = at * whole.sizes[axis] + index[axis];
      into.push_back({tensors.tensors.size() - 1, i * run, run, at});
      for (size_t axis = inner; axis-- > 0;) {
        if (++index[axis] < block.offsets[axis] + block.sizes[axis]) break;
        index[axis] = block.offsets[axis];
      }
    }
  }

  const fs::path folder_;
  const PickleTree& tree_;
  std::map<Key, Place> places_;
  size_t pieces_ = 0;
};

std::vector<std::byte> metadata_of(const fs::path& folder) {
  const File file = File::open(folder / kMetadata);
  if (file.size_bytes() > kMostMetadataBytes) reject_torch(file.path(), fmt::format("{} bytes are too many for it", file.size_bytes()));
  std::vector<std::byte> bytes(static_cast<size_t>(file.size_bytes()));
  file.read(0, bytes);
  return bytes;
}

}  // namespace

fs::path distributed_checkpoint_in(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& candidate : {folder, folder / "pytorch_model_fsdp_0"}) {
    if (fs::is_regular_file(candidate / kMetadata, ignored)) return candidate;
  }
  return {};
}

struct DistributedCheckpoint::State {
  explicit State(const fs::path& path) : folder(path) {
    const PickleTree tree(metadata_of(folder), folder / kMetadata, "", belongs_to_metadata, kCure);
    MetadataReader reader(folder, tree);
    reader.read();
    infos = std::move(reader.infos);
    pieces = std::move(reader.pieces);
    tensors = std::move(reader.tensors);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!by_name.emplace(infos[i].name, i).second) reject_torch(folder / kMetadata, "it has two tensors " + in_quotes(infos[i].name));
    }
  }
  const fs::path folder;
  std::vector<TensorInfo> infos;
  std::vector<Pieces> pieces;
  PieceTensors tensors;
  std::map<std::string, size_t> by_name;
};

DistributedCheckpoint::DistributedCheckpoint(const fs::path& folder) : state_(std::make_unique<State>(folder)) {}
DistributedCheckpoint::DistributedCheckpoint(DistributedCheckpoint&&) noexcept = default;
DistributedCheckpoint::~DistributedCheckpoint() = default;

const std::vector<TensorInfo>& DistributedCheckpoint::tensors() const { return state_->infos; }

const TensorInfo* DistributedCheckpoint::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->infos[found->second];
}

void DistributedCheckpoint::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype))
    reject_torch(state_->folder, fmt::format("tensor {}: expected floating-point numbers", tensor.name));
  state_->tensors.read(state_->pieces[state_->by_name.at(tensor.name)], begin, out);
}

}  // namespace spillway::data
