#include "data/weights/zero_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/file.h"
#include "data/safetensors/element_count.h"
#include "data/weights/zero_files.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

class ModelReader {
 public:
  explicit ModelReader(const TorchArchive& archive) : tree_(archive, belongs_to_deepspeed, kDeepSpeedCure) {}

  ZeroModel read() {
    if (!tree_.is_dictionary(tree_.root())) reject("expected a dictionary, as DeepSpeed writes, got something else");
    model_.steps = count("global_steps");
    model_.skipped = count("skipped_steps");
    model_.samples = count("global_samples");
    if (const PickleNode* version = find("ds_version"); version != nullptr && version->kind == Kind::text)
      model_.version = tree_.text(*version);
    if (const PickleNode* shapes = find("param_shapes"); shapes != nullptr && shapes->kind == Kind::list) {
      for (const PickleRef group : tree_.elements(shapes)) {
        tree_.hold(sizeof(model_.groups[0]));
        model_.groups.push_back(shapes_in(tree_.at(group)));
      }
    } else if (shapes != nullptr && tree_.is_dictionary(*shapes)) {
      model_.groups.push_back(shapes_in(*shapes));
    }
    read_frozen();
    read_module();
    over(find("shared_params"), [&](const std::string& name, const PickleNode& of) {
      if (of.kind != Kind::text) return;
      tree_.hold(sizeof(model_.shared[0]) + name.size() + of.count);
      model_.shared.emplace_back(name, tree_.text(of));
    });
    return std::move(model_);
  }

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_zero(tree_.archive().path(), why); }
  const PickleNode* find(const char* key) const { return tree_.find(&tree_.root(), key); }
  i64 count(const char* key) const {
    const PickleNode* node = find(key);
    return node != nullptr && node->kind == Kind::integer ? std::max<i64>(node->integer(), 0) : 0;
  }
  // Calls `each` for every entry of `dictionary` whose key is a text. Does nothing if `dictionary` is not a dictionary.
  void over(const PickleNode* dictionary, const auto& each) const {
    const auto entries = dictionary == nullptr ? std::span<const PickleRef>() : tree_.entries(*dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode& key = tree_.at(entries[i]);
      if (key.kind != Kind::text) continue;
      tree_.spend_name(key.count);
      each(std::string(tree_.text(key)), tree_.at(entries[i + 1]));
    }
  }

  std::vector<NamedShape> shapes_in(const PickleNode& dictionary) const {
    std::vector<NamedShape> shapes;
    over(&dictionary, [&](const std::string& name, const PickleNode& sizes) {
      std::vector<i64> axes = tree_.sizes(sizes, name);
      const std::optional<i64> elems = element_count(axes);
      if (!elems) reject(fmt::format("the shape of {} has too many elements", in_quotes(name)));
      tree_.hold(sizeof(NamedShape) + name.size() + axes.size() * sizeof(i64));
      shapes.push_back({name, std::move(axes), *elems});
    });
    return shapes;
  }

  void read_frozen() {
    const PickleNode *shapes = find("frozen_param_shapes"), *parts = find("frozen_param_fragments");
    if (shapes == nullptr || parts == nullptr) return;
    model_.frozen = shapes_in(*shapes);
    const auto by_name = tree_.by_key(parts);
    for (const NamedShape& shape : model_.frozen) {
      tree_.spend_name(shape.name.size());
      const auto found = by_name.find(shape.name);
      auto tensor = found == by_name.end() ? std::nullopt : tree_.tensor(*found->second, shape.name);
      if (!tensor) reject(fmt::format("the file has no values for the frozen parameter {}", in_quotes(shape.name)));
      model_.frozen_values.push_back(std::move(*tensor));
    }
  }

  void read_module() {
    over(find("module"), [&](const std::string& name, const PickleNode& node) {
      if (auto tensor = tree_.tensor(node, name)) model_.module.emplace(name, std::move(*tensor));
    });
    for (const PickleRef ref : tree_.elements(find("buffer_names"))) {
      const std::string_view name = tree_.text(tree_.at(ref));
      tree_.spend_name(name.size());
      const auto found = model_.module.find(name);
      if (found == model_.module.end()) continue;
      tree_.hold(sizeof(NamedTensor) + name.size() + 2 * found->second.sizes.size() * sizeof(i64));
      model_.buffers.push_back({found->first, found->second});
    }
  }

  const TorchTree tree_;
  ZeroModel model_;
};

}  // namespace

TensorInfo NamedShape::info(DType dtype, std::string_view foreign) const {
  TorchTensor tensor;
  tensor.dtype = dtype;
  tensor.foreign = foreign;
  tensor.sizes = sizes;
  tensor.elems = elems;
  return tensor.info(name);
}

ZeroModel zero_model(const TorchArchive& archive) { return ModelReader(archive).read(); }

bool belongs_to_deepspeed(std::string_view global) {
  constexpr std::string_view kPackages[] = {"deepspeed.", "torch.", "numpy.", "collections.", "datetime.", "enum."};
  constexpr std::string_view kPlain[] = {"argparse.Namespace", "_codecs.encode",        "pathlib.PosixPath",
                                         "pathlib.Path",       "types.SimpleNamespace", "copyreg._reconstructor"};
  constexpr std::string_view kTypes[] = {"object", "set", "frozenset", "list",      "dict",    "tuple", "int",  "float",
                                         "bool",   "str", "bytes",     "bytearray", "complex", "slice", "range"};
  if (std::ranges::find(kPlain, global) != std::end(kPlain)) return true;
  for (const std::string_view package : kPackages) {
    if (global.starts_with(package)) return true;
  }
  for (const std::string_view module : {"builtins.", "__builtin__."}) {
    if (global.starts_with(module)) return std::ranges::find(kTypes, global.substr(module.size())) != std::end(kTypes);
  }
  return false;
}

}  // namespace spillway::data
