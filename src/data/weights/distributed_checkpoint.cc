#include "data/weights/distributed_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "data/files/file.h"
#include "data/safetensors/element_count.h"
#include "data/weights/tensor_pieces.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;
using Sizes = std::vector<i64>;

constexpr const char* kMetadata = ".metadata";
constexpr i64 kMostMetadataBytes = 256 * kMiB;
constexpr u64 kNames = 3;  // The reader keeps up to three copies of a tensor's name; all are charged to the read budget.
constexpr std::string_view kCure = "save the model's state_dict alone";

bool belongs_to_metadata(std::string_view global) {
  constexpr std::string_view kPlain[] = {"pathlib.PosixPath", "pathlib.Path", "builtins.set", "builtins.frozenset"};
  return global.starts_with("torch.") || global.starts_with("collections.") || std::ranges::find(kPlain, global) != std::end(kPlain);
}

// A rectangular block of a tensor. A sharded checkpoint stores each tensor as one or more such blocks.
struct Block {
  Sizes offsets, sizes;
  i64 elems = 0;
  // The length of a run: the largest number of consecutive elements of the block that are also consecutive in the whole tensor.
  i64 run = 1;
};
// Tells in which file a block is stored, and at which bytes. A block is identified by
// the key: the tensor's name in the metadata and the block's offsets in the tensor.
struct Place {
  std::string_view file;
  TorchArchive::Range range;
};
using Key = std::pair<std::string_view, Sizes>;

class MetadataReader {
 public:
  MetadataReader(const fs::path& folder, const PickleTree& tree)
      : infos("[torch] " + tree.path().string()), folder_(folder), tree_(tree), cut_("[torch] " + tree.path().string()) {}

  void read() {
    read_places();
    paths_ = tree_.by_key(tree_.attribute(&tree_.root(), "planner_data"));
    const PickleNode* all = tree_.attribute(&tree_.root(), "state_dict_metadata");
    if (all == nullptr || !tree_.is_dictionary(*all)) reject("expected `state_dict_metadata`, a dictionary of tensors, got something else");
    const auto entries = tree_.entries(*all);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode& key = tree_.at(entries[i]);
      if (key.kind != Kind::text) reject("expected texts as the keys of `state_dict_metadata`, got something else");
      // An entry that is not a tensor, such as a number or a text, is skipped: such values are saved as bytes and have no chunks.
      if (tree_.attribute(&tree_.at(entries[i + 1]), "chunks") == nullptr) continue;
      if (const std::string name = name_of(tree_.text(key)); !name.empty()) one(tree_.text(key), name, tree_.at(entries[i + 1]));
    }
    if (infos.all().empty()) reject("expected the tensors of a model, got none");
  }

  TensorIndex infos;
  std::vector<TensorPieces> pieces;
  PieceTensors tensors;

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_torch(tree_.path(), why); }
  [[noreturn]] void reject(std::string_view tensor, const std::string& why) const {
    reject(fmt::format("tensor {}: {}", in_quotes(tensor), why));
  }

  std::string_view text(const PickleNode* node, const char* what) const {
    if (node == nullptr || node->kind != Kind::text) reject(fmt::format("expected {}", what));
    tree_.spend_name(node->count);
    return tree_.text(*node);
  }
  i64 number(const PickleNode* node, const char* what) const {
    if (node == nullptr || node->kind != Kind::integer || node->integer() < 0) reject(fmt::format("expected {}", what));
    return node->integer();
  }

  void read_places() {
    const PickleNode* all = tree_.attribute(&tree_.root(), "storage_data");
    const auto entries = all == nullptr ? std::span<const PickleRef>() : tree_.entries(*all);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode &key = tree_.at(entries[i]), &value = tree_.at(entries[i + 1]);
      const PickleNode* offset = tree_.attribute(&key, "offset");
      if (offset == nullptr || offset->kind == Kind::none) continue;  // an entry for a value saved as bytes is skipped
      const std::string_view name = text(tree_.attribute(&key, "fqn"), "the name of each block's tensor");
      const std::string_view file = text(tree_.attribute(&value, "relative_path"), "the file that holds each block");
      if (file.empty() || file == "." || file == ".." || file.find_first_of(std::string_view("/\0", 2)) != file.npos)
        reject(fmt::format("expected the plain name of a file in the same folder, got {}", in_quotes(file)));
      const PickleNode* transforms = tree_.attribute(&value, "transform_descriptors");
      if (transforms != nullptr && transforms->kind != Kind::none && !(transforms->kind == Kind::list && transforms->count == 0))
        reject(fmt::format("tensor {} was transformed when it was saved (perhaps compressed): save the checkpoint again without transforms",
                           in_quotes(name)));
      Sizes offsets = tree_.sizes(*offset, name);
      tree_.hold(sizeof(Key) + sizeof(Place) + kMapNodeBytes + offsets.size() * sizeof(i64));
      places_[{name, std::move(offsets)}] = {file,
                                             {number(tree_.attribute(&value, "offset"), "the offset at which each block begins"),
                                              number(tree_.attribute(&value, "length"), "the length of each block")}};
    }
    check_places();
  }

  // Checks that no two blocks share bytes of a file, so that no byte is read for two blocks, whatever the metadata says.
  void check_places() {
    std::vector<const Place*> all;
    for (const auto& [key, place] : places_) all.push_back(&place);
    tree_.hold(all.size() * sizeof(all[0]));
    std::ranges::sort(
        all, [](const Place* a, const Place* b) { return a->file != b->file ? a->file < b->file : a->range.begin < b->range.begin; });
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == 0 || all[i]->file != all[i - 1]->file) {
        std::error_code missing;
        const std::uintmax_t bytes = fs::file_size(folder_ / all[i]->file, missing);
        if (!missing) cut_.add_input(bytes);
      } else if (all[i]->range.begin - all[i - 1]->range.begin < all[i - 1]->range.bytes) {
        reject(fmt::format("expected blocks that do not overlap in {}, got two blocks that share bytes at offset {}",
                           in_quotes(all[i]->file), all[i]->range.begin));
      }
    }
  }

  // Returns the model's name for the tensor that the metadata calls `key`, or "" if the tensor belongs to the optimizer.
  // The name is the last key on the tensor's path in the saved dictionary. If no path is recorded, the name is `key`.
  std::string name_of(std::string_view key) const {
    tree_.spend_name(key.size());
    const auto path = paths_.find(key);
    if (path == paths_.end() || path->second->kind != Kind::tuple || path->second->count == 0)
      return key.starts_with("optim") ? "" : std::string(key);
    const auto parts = tree_.elements(path->second);
    for (const PickleRef part : parts.first(parts.size() - 1)) {
      if (tree_.text(tree_.at(part)).starts_with("optim")) return "";
    }
    const std::string_view last = tree_.text(tree_.at(parts.back()));
    tree_.spend_name(last.size());
    return std::string(last);
  }

  // Adds one tensor, called `key` in the metadata and `name` in the model. What the metadata says about the tensor is checked before a data
  // file is opened.
  void one(std::string_view key, const std::string& name, const PickleNode& metadata) {
    const PickleNode *size = tree_.attribute(&metadata, "size"), *chunks = tree_.attribute(&metadata, "chunks");
    if (size == nullptr || chunks->kind != Kind::list) reject(name, "expected a size and a list of chunks, got something else");
    TorchTensor whole;
    whole.sizes = tree_.sizes(*size, name);
    const std::optional<i64> elems = element_count(whole.sizes);
    if (!elems) reject(name, fmt::format("expected at most {} elements, got more", kMostElements));
    whole.elems = *elems;
    const std::vector<Block> blocks = blocks_of(name, whole, *chunks);
    TensorPieces all = cut(name, whole, blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const TorchTensor& stored = stored_block(key, blocks[i]);
      if (i > 0 && (stored.dtype != whole.dtype || stored.foreign != whole.foreign)) reject(name, "its blocks are of different types");
      whole.dtype = stored.dtype;
      whole.foreign = stored.foreign;
    }
    tree_.hold(sizeof(TensorInfo) + kNames * name.size());
    infos.add(whole.info(name));
    pieces.push_back(std::move(all));
  }

  // Returns the tensor's blocks that have elements. If all blocks are empty, returns the first one.
  std::vector<Block> blocks_of(const std::string& name, const TorchTensor& whole, const PickleNode& chunks) const {
    std::vector<Block> blocks;
    for (const PickleRef ref : tree_.elements(&chunks)) {
      const PickleNode *offsets = tree_.attribute(&tree_.at(ref), "offsets"), *sizes = tree_.attribute(&tree_.at(ref), "sizes");
      if (offsets == nullptr || sizes == nullptr) reject(name, "expected offsets and sizes for each block, got a block without them");
      Block block{tree_.sizes(*offsets, name), tree_.sizes(*sizes, name)};
      check_inside(name, whole, block);
      if (block.elems == 0 && (whole.elems > 0 || !blocks.empty())) continue;
      tree_.hold(sizeof(Block) + 2 * block.sizes.size() * sizeof(i64));
      blocks.push_back(std::move(block));
    }
    return blocks;
  }
  void check_inside(const std::string& name, const TorchTensor& whole, Block& block) const {
    const size_t axes = whole.sizes.size();
    if (block.offsets.size() != axes || block.sizes.size() != axes) reject(name, "a block has another number of axes than the tensor");
    for (size_t axis = 0; axis < axes; ++axis) {
      if (block.offsets[axis] > whole.sizes[axis] || block.sizes[axis] > whole.sizes[axis] - block.offsets[axis])
        reject(name, "a block reaches beyond the tensor");
    }
    block.elems = *element_count(block.sizes);  // the count exists, since a block has at most as many elements as the whole tensor
    // A run spans the trailing axes that the block covers completely, and the one axis before them: elements along these axes are
    // consecutive in the whole tensor.
    for (size_t axis = axes; axis > 0 && block.elems > 0 && (axis == axes || block.sizes[axis] == whole.sizes[axis]);)
      block.run *= block.sizes[--axis];
  }

  // Cuts the blocks into runs (Block::run) and sorts the runs by their position in the whole tensor. Checks that the runs fill the tensor
  // exactly.
  TensorPieces cut(const std::string& name, const TorchTensor& whole, const std::vector<Block>& blocks) {
    i64 runs = 0, missing = whole.elems;
    for (const Block& block : blocks) {
      runs += block.elems / block.run;
      missing -= block.elems;
      if (missing < 0) reject(name, "its blocks overlap");
    }
    if (missing > 0) reject(name, fmt::format("its blocks hold only {} of its {} elements", whole.elems - missing, whole.elems));
    cut_.hold(static_cast<u64>(runs) * sizeof(TensorPiece));
    TensorPieces all;
    all.reserve(static_cast<size_t>(runs));
    for (size_t i = 0; i < blocks.size(); ++i) cut_block(whole, blocks[i], tensors.tensors.size() + i, all);
    std::ranges::sort(all, {}, &TensorPiece::at);
    i64 end = 0;
    for (const TensorPiece& piece : all) {
      if (piece.at != end) reject(name, fmt::format("its blocks overlap or leave a gap at element {}", std::min(end, piece.at)));
      end += piece.elems;
    }
    return all;
  }
  static void cut_block(const TorchTensor& whole, const Block& block, size_t tensor, TensorPieces& into) {
    const size_t axes = whole.sizes.size();
    Sizes index(block.offsets);
    i64 inner = 1;  // the number of consecutive elements that a run spans along the axes from `outer` on
    size_t outer = axes;
    while (outer > 0 && inner < block.run) inner *= block.sizes[--outer];
    for (i64 begin = 0; begin < block.elems; begin += block.run) {
      i64 at = 0;
      for (size_t axis = 0; axis < axes; ++axis) at = at * whole.sizes[axis] + index[axis];
      into.push_back({tensor, begin, block.run, at});
      for (size_t axis = outer; axis-- > 0;) {
        if (++index[axis] < block.offsets[axis] + block.sizes[axis]) break;
        index[axis] = block.offsets[axis];
      }
    }
  }

  const TorchTensor& stored_block(std::string_view key, const Block& block) {
    tree_.spend_name(key.size());
    const auto place = places_.find({key, block.offsets});
    if (place == places_.end()) reject(fmt::format("no file is recorded for a block of tensor {}", in_quotes(key)));
    const fs::path path = folder_ / place->second.file;
    tree_.hold(sizeof(TorchTensor) + 2 * block.sizes.size() * sizeof(i64) + sizeof(fs::path) + path.native().size());
    const size_t file = tensors.archives->add(path, place->second.range);
    const auto archive = tensors.archives->open(file);
    const TorchTree tree(*archive, belongs_to_tensors, kCure);
    auto tensor = tree.tensor(tree.root(), key);
    if (!tensor || tensor->sizes != block.sizes)
      reject_torch(path, fmt::format("expected the block of tensor {} at byte {}, as .metadata says, got something else", in_quotes(key),
                                     place->second.range.begin));
    if (tensor->elems > tensor->storage_elems())
      reject_torch(path, fmt::format("expected {} elements stored for the block of tensor {}, got only {}, which the block repeats",
                                     tensor->elems, in_quotes(key), tensor->storage_elems()));
    tensors.add(file, std::move(*tensor));
    return tensors.tensors.back().second;
  }

  const fs::path folder_;
  const PickleTree& tree_;
  ReadBudget cut_;  // the budget for the pieces of all tensors; it grows with the bytes of the data files
  std::map<Key, Place> places_;
  // The paths of the tensors in the saved dictionary, by the tensor's name in the
  // metadata. A path is the keys that lead to the tensor, the outermost first.
  std::map<std::string_view, const PickleNode*> paths_;
};

std::vector<std::byte> metadata_of(const fs::path& folder) {
  const File file = File::open(folder / kMetadata);
  if (file.size_bytes() > kMostMetadataBytes)
    reject_torch(file.path(), fmt::format("the file has {} bytes, which is too many for .metadata", file.size_bytes()));
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
  std::vector<TensorPieces> pieces;
  PieceTensors tensors;
};

DistributedCheckpoint::DistributedCheckpoint(const fs::path& folder) {
  const PickleTree tree(metadata_of(folder), folder / kMetadata, "", belongs_to_metadata, kCure);
  MetadataReader reader(folder, tree);
  reader.read();
  hold(std::move(reader.infos));
  state_ = std::make_unique<State>(State{std::move(reader.pieces), std::move(reader.tensors)});
}
DistributedCheckpoint::~DistributedCheckpoint() = default;

void DistributedCheckpoint::widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  state_->tensors.read(state_->pieces[number_of(tensor)], begin, out);
}

}  // namespace spillway::data
