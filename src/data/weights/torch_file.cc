#include "data/weights/torch_file.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <map>

#include "data/weights/torch_tree.h"

namespace spillway::data {
namespace {

constexpr int kMostDepth = 8;  // of dictionaries in dictionaries
constexpr size_t kMostTensors = size_t{1} << 20;

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  std::array<char, 4> first{};
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), first.size()) && std::string_view(first.data(), first.size()) == "PK\3\4";
}

struct TorchFile::State {
  explicit State(const std::filesystem::path& path) : archive(path) {
    const TorchTree tree(archive, belongs_to_tensors, "save the state_dict alone, or as safetensors");
    if (!tree.is_dictionary(tree.root())) reject_torch(path, "expected a dictionary of tensors: save a state_dict");
    over(tree, tree.root(), "", 0);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!by_name.emplace(infos[i].name, i).second) reject_torch(path, "it has two tensors " + infos[i].name);
    }
  }

  void over(const TorchTree& tree, const PickleNode& dictionary, const std::string& prefix, int depth) {
    const auto entries = tree.entries(dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode &key = tree.at(entries[i]), &value = tree.at(entries[i + 1]);
      if (key.kind != PickleNode::Kind::text) continue;
      const std::string name = prefix + key.text;
      if (tree.is_dictionary(value)) {
        if (depth == kMostDepth || ++visits > kMostTensors) reject_torch(archive.path(), "its dictionaries nest too deeply");
        over(tree, value, name + ".", depth + 1);
      } else if (auto tensor = tree.tensor(value, name)) {  // else a number, a text
        if (infos.size() == kMostTensors) reject_torch(archive.path(), fmt::format("expected at most {} tensors", kMostTensors));
        infos.push_back(tensor->info(name));
        tensors.push_back(std::move(*tensor));
      }
    }
  }

  TorchArchive archive;
  std::vector<TensorInfo> infos;
  std::vector<TorchTensor> tensors;
  std::map<std::string, size_t> by_name;
  size_t visits = 0;
};

TorchFile::TorchFile(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
TorchFile::TorchFile(TorchFile&&) noexcept = default;
TorchFile::~TorchFile() = default;

const std::vector<TensorInfo>& TorchFile::tensors() const { return state_->infos; }

const TensorInfo* TorchFile::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->infos[found->second];
}

void TorchFile::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype))
    reject_torch(state_->archive.path(), fmt::format("tensor {}: expected floating-point numbers", tensor.name));
  data::read_wide(state_->archive, state_->tensors[state_->by_name.at(tensor.name)], begin, out);
}

}  // namespace spillway::data
