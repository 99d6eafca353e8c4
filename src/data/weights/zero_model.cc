#include "data/weights/zero_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/file.h"
#include "data/weights/zero_files.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

class ModelReader {
 public:
  explicit ModelReader(const TorchArchive& archive) : tree_(archive, belongs_to_deepspeed, kDeepSpeedCure) {}

  ZeroModel read() {
    if (!tree_.is_dictionary(tree_.root())) reject("expected a dictionary, as DeepSpeed writes it");
    model_.steps = count("global_steps");
    model_.skipped = count("skipped_steps");
    model_.samples = count("global_samples");
    if (const PickleNode* version = find("ds_version"); version != nullptr && version->kind == Kind::text) model_.version = version->text;
    if (const PickleNode* shapes = find("param_shapes"); shapes != nullptr && shapes->kind == Kind::list) {
      for (const PickleRef group : shapes->items) model_.groups.push_back(shapes_in(tree_.at(group)));
    } else if (shapes != nullptr && tree_.is_dictionary(*shapes)) {
      model_.groups.push_back(shapes_in(*shapes));
    }
    read_frozen();
    read_module();
    over(find("shared_params"), [&](const std::string& name, const PickleNode& of) {
      if (of.kind == Kind::text) model_.shared.emplace_back(name, of.text);
    });
    return std::move(model_);
  }

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_zero(tree_.archive().path(), why); }
  const PickleNode* find(const char* key) const { return tree_.find(&tree_.root(), key); }
  i64 count(const char* key) const {
    const PickleNode* node = find(key);
    return node != nullptr && node->kind == Kind::integer && node->text.empty() ? std::max<i64>(node->integer, 0) : 0;
  }
  // The entries of a dictionary, if it is one.
  void over(const PickleNode* dictionary, const auto& each) const {
    const auto entries = dictionary == nullptr ? std::span<const PickleRef>() : tree_.entries(*dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      if (tree_.at(entries[i]).kind == Kind::text) each(tree_.at(entries[i]).text, tree_.at(entries[i + 1]));
    }
  }

  std::vector<NamedShape> shapes_in(const PickleNode& dictionary) const {
    std::vector<NamedShape> shapes;
    over(&dictionary, [&](const std::string& name, const PickleNode& sizes) {
      NamedShape shape{name, tree_.sizes(sizes, name), 1};
      for (const i64 size : shape.sizes) {
        if (__builtin_mul_overflow(shape.elems, size, &shape.elems) || shape.elems > kMostZeroElems)
          reject(fmt::format("the shape of {} has too many elements", in_quotes(name)));
      }
      shapes.push_back(std::move(shape));
    });
    return shapes;
  }

  void read_frozen() {
    const PickleNode *shapes = find("frozen_param_shapes"), *parts = find("frozen_param_fragments");
    if (shapes == nullptr || parts == nullptr) return;
    model_.frozen = shapes_in(*shapes);
    for (const NamedShape& shape : model_.frozen) {
      const PickleNode* node = tree_.find(parts, shape.name);
      auto tensor = node == nullptr ? std::nullopt : tree_.tensor(*node, shape.name);
      if (!tensor) reject(fmt::format("it has no values of the frozen parameter {}", in_quotes(shape.name)));
      model_.frozen_values.push_back(std::move(*tensor));
    }
  }

  void read_module() {
    over(find("module"), [&](const std::string& name, const PickleNode& node) {
      if (auto tensor = tree_.tensor(node, name)) model_.module.emplace(name, std::move(*tensor));
    });
    const PickleNode* names = find("buffer_names");
    if (names == nullptr || names->kind != Kind::list) return;
    for (const PickleRef ref : names->items) {
      const auto found = model_.module.find(tree_.at(ref).text);
      if (found != model_.module.end()) model_.buffers.push_back({found->first, found->second});
    }
  }

  const TorchTree tree_;
  ZeroModel model_;
};

}  // namespace

TensorInfo NamedShape::info(DType dtype) const {
  TorchTensor tensor;
  tensor.dtype = dtype;
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
