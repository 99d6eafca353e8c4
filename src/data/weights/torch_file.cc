#include "data/weights/torch_file.h"

#include <fmt/format.h>

#include "data/files/file.h"
#include "data/torch/torch_tree.h"

namespace spillway::data {
namespace {

constexpr int kMostDepth = 8;  // the limit on the depth of nested dictionaries

}  // namespace

bool is_torch_file(const std::filesystem::path& path) { return beginning_of(path, 4) == "PK\3\4"; }

struct TorchFile::State {
  explicit State(const std::filesystem::path& path) : archive(path), index("[torch] " + path.string()) {
    const TorchTree tree(archive, belongs_to_tensors, "save the state_dict alone, or as safetensors");
    if (!tree.is_dictionary(tree.root())) reject_torch(path, "expected a dictionary of tensors, got something else: save a state_dict");
    over(tree, tree.root(), "", 0);
  }

  void over(const TorchTree& tree, const PickleNode& dictionary, const std::string& prefix, int depth) {
    const auto entries = tree.entries(dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode &key = tree.at(entries[i]), &value = tree.at(entries[i + 1]);
      if (key.kind != PickleNode::Kind::text) continue;
      tree.spend_name(prefix.size() + key.count);
      const std::string name = prefix + std::string(tree.text(key));
      if (tree.is_dictionary(value)) {
        if (depth == kMostDepth) reject_torch(archive.path(), "the dictionaries in the file are nested too deeply");
        over(tree, value, name + ".", depth + 1);
      } else if (auto tensor = tree.tensor(value, name)) {  // other values, such as a number or a text, are skipped
        index.add(tensor->info(name));
        tensors.push_back(std::move(*tensor));
      }
    }
  }

  TorchArchive archive;
  TensorIndex index;
  std::vector<TorchTensor> tensors;
};

TorchFile::TorchFile(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) { hold(std::move(state_->index)); }
TorchFile::~TorchFile() = default;

void TorchFile::widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  data::read_wide(state_->archive, state_->tensors[number_of(tensor)], begin, out);
}

bool TorchFile::read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const {
  const TorchTensor& found = state_->tensors[number_of(tensor)];
  if (!found.is_contiguous()) return false;
  state_->archive.read(found.storage, (found.offset + begin) * size_of(found.dtype), out);
  return true;
}

}  // namespace spillway::data
