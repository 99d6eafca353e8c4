#include "models/onnx/graph.h"

#include <fmt/format.h>

#include <protozero/pbf_writer.hpp>

#include "base/error.h"
#include "data/files/file.h"
#include "models/export/weight_bytes.h"

namespace spillway::models::onnx {
namespace {

using Message = protozero::pbf_writer;

constexpr i64 kIrVersion = 8, kOperatorSet = 17, kAlignment = 64;
constexpr i32 kExternal = 1;  // the value EXTERNAL of the enum TensorProto.DataLocation
constexpr const char* kDataName = "model.onnx.data";

// The field numbers of onnx.proto.
namespace model_field {
enum { ir_version = 1, producer_name = 2, graph = 7, opset_import = 8 };
}
namespace opset_field {
enum { version = 2 };
}
namespace graph_field {
enum { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
}
namespace node_field {
enum { input = 1, output = 2, name = 3, op_type = 4, attribute = 5 };
}
namespace attribute_field {
enum { name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20 };
}
namespace attribute_type {
enum { number = 1, integer = 2, text = 3, integers = 7 };
}
namespace tensor_field {
enum { dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13, data_location = 14 };
}
namespace entry_field {
enum { key = 1, value = 2 };
}
namespace value_field {
enum { name = 1, type = 2 };
}
namespace type_field {
enum { tensor_type = 1 };
}
namespace tensor_type_field {
enum { elem_type = 1, shape = 2 };
}
namespace shape_field {
enum { dim = 1 };
}
namespace dimension_field {
enum { value = 1, param = 2 };
}

template <class Fill>
void message(Message& parent, protozero::pbf_tag_type field, Fill&& fill) {
  Message child(parent, field);
  fill(child);
}

std::string value_info(const Value& name, ElementType type, const std::vector<Dimension>& dimensions) {
  std::string bytes;
  Message info(bytes);
  info.add_string(value_field::name, name);
  message(info, value_field::type, [&](Message& t) {
    message(t, type_field::tensor_type, [&](Message& tensor) {
      tensor.add_int32(tensor_type_field::elem_type, static_cast<i32>(type));
      message(tensor, tensor_type_field::shape, [&](Message& shape) {
        for (const Dimension& d : dimensions) {
          message(shape, shape_field::dim, [&](Message& dimension) {
            if (const i64* size = std::get_if<i64>(&d)) dimension.add_int64(dimension_field::value, *size);
            if (const std::string* named = std::get_if<std::string>(&d)) dimension.add_string(dimension_field::param, *named);
          });
        }
      });
    });
  });
  return bytes;
}

void add_attribute(Message& node, const std::string& name, const Attribute& attribute) {
  message(node, node_field::attribute, [&](Message& a) {
    a.add_string(attribute_field::name, name);
    if (const i64* i = std::get_if<i64>(&attribute)) {
      a.add_int64(attribute_field::i, *i);
      a.add_enum(attribute_field::type, attribute_type::integer);
    } else if (const double* f = std::get_if<double>(&attribute)) {
      a.add_float(attribute_field::f, static_cast<float>(*f));
      a.add_enum(attribute_field::type, attribute_type::number);
    } else if (const std::string* s = std::get_if<std::string>(&attribute)) {
      a.add_bytes(attribute_field::s, *s);
      a.add_enum(attribute_field::type, attribute_type::text);
    } else {
      for (const i64 v : std::get<std::vector<i64>>(attribute)) a.add_int64(attribute_field::ints, v);
      a.add_enum(attribute_field::type, attribute_type::integers);
    }
  });
}

void add_to(std::string& messages, protozero::pbf_tag_type field, const std::string& bytes) { Message(messages).add_message(field, bytes); }

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

Graph::Graph(const PlainModel& model, DType type) : model_(model), type_(type) {
  require(type == DType::f32 || type == DType::f16, "[onnx] expected f32 or f16 as the type of the graph");
  for (const auto& p : model.model().parameters) parameters_.emplace(p->name, p.get());
}

void Graph::input(const Value& name, ElementType type, const std::vector<Dimension>& dimensions) {
  add_to(inputs_, graph_field::input, value_info(name, type, dimensions));
}

void Graph::output(const Value& name, ElementType type, const std::vector<Dimension>& dimensions) {
  add_to(outputs_, graph_field::output, value_info(name, type, dimensions));
}

std::vector<Value> Graph::nodes(const std::string& op, const std::vector<Value>& inputs, size_t outputs, const Attributes& attributes) {
  const std::string own = fmt::format("{}_{}", op, numbered_++);
  std::vector<Value> values;
  for (size_t i = 0; i < outputs; ++i) values.push_back(outputs == 1 ? own : fmt::format("{}.{}", own, i));
  std::string bytes;
  Message node(bytes);
  for (const Value& value : inputs) node.add_string(node_field::input, value);
  for (const Value& value : values) node.add_string(node_field::output, value);
  node.add_string(node_field::name, own);
  node.add_string(node_field::op_type, op);
  for (const auto& [name, attribute] : attributes) add_attribute(node, name, attribute);
  add_to(nodes_, graph_field::node, bytes);
  return values;
}

Value Graph::node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes) {
  return nodes(op, inputs, 1, attributes).front();
}

void Graph::name(const Value& value, const Value& as) {
  std::string bytes;
  Message node(bytes);
  node.add_string(node_field::input, value);
  node.add_string(node_field::output, as);
  node.add_string(node_field::name, "output " + as);
  node.add_string(node_field::op_type, "Identity");
  add_to(nodes_, graph_field::node, bytes);
}

Value Graph::constant(ElementType type, const std::vector<i64>& shape, std::string bytes) {
  const std::string key = fmt::format("{} {} ", static_cast<int>(type), fmt::join(shape, ",")) + bytes;
  const auto [at, is_new] = constants_.emplace(key, fmt::format("constant_{}", constants_.size()));
  if (!is_new) return at->second;
  std::string tensor_bytes;
  Message tensor(tensor_bytes);
  for (const i64 d : shape) tensor.add_int64(tensor_field::dims, d);
  tensor.add_int32(tensor_field::data_type, static_cast<i32>(type));
  tensor.add_string(tensor_field::name, at->second);
  tensor.add_bytes(tensor_field::raw_data, bytes);
  add_to(initializers_, graph_field::initializer, tensor_bytes);
  return at->second;
}

Value Graph::integers(const std::vector<i64>& values) { return constant(ElementType::int64, {std::ssize(values)}, bytes_of(values)); }
Value Graph::integer(i64 value) { return constant(ElementType::int64, {}, bytes_of(std::vector{value})); }

Value Graph::number(double value) {
  if (!is_half()) return number_f32(value);
  return constant(ElementType::f16, {}, bytes_of(std::vector{narrow<Float16>(static_cast<float>(value))}));
}

Value Graph::number_f32(double value) { return numbers_f32({value}, {}); }

Value Graph::numbers_f32(const std::vector<double>& values, const std::vector<i64>& shape) {
  return constant(ElementType::f32, shape, bytes_of(std::vector<float>(values.begin(), values.end())));
}

Value Graph::weight(const std::string& parameter) {
  if (!parameters_.contains(parameter)) throw Error(ErrorCode::bug, "[onnx] expected a parameter of the model, got " + parameter);
  used_.insert(parameter);
  return parameter;
}

std::string Graph::encoded_weight(const nn::Parameter& p, i64 offset) const {
  std::string bytes;
  Message tensor(bytes);
  for (int d = 0; d < p.shape.rank(); ++d) tensor.add_int64(tensor_field::dims, p.shape[d]);
  tensor.add_int32(tensor_field::data_type, static_cast<i32>(is_half() ? ElementType::f16 : ElementType::f32));
  tensor.add_string(tensor_field::name, p.name);
  const std::pair<const char*, std::string> entries[] = {
      {"location", kDataName}, {"offset", std::to_string(offset)}, {"length", std::to_string(p.elems() * size_of(type_))}};
  for (const auto& [key, value] : entries) {
    message(tensor, tensor_field::external_data, [&](Message& entry) {
      entry.add_string(entry_field::key, key);
      entry.add_string(entry_field::value, value);
    });
  }
  tensor.add_enum(tensor_field::data_location, kExternal);
  return bytes;
}

void Graph::write(const std::filesystem::path& folder) const {
  data::File file = data::File::create(folder / kDataName);
  std::string graph = nodes_ + inputs_ + outputs_ + initializers_;
  i64 begin = 0;
  for (const auto& p : model_.model().parameters) {
    if (!used_.contains(p->name)) throw Error(ErrorCode::bug, "[onnx] the graph does not use the parameter " + p->name);
    add_to(graph, graph_field::initializer, encoded_weight(*p, begin));
    write_bytes(model_.weights(), *p, type_, [&](i64 offset, std::span<const std::byte> bytes) { file.write(begin + offset, bytes); });
    begin = (begin + p->elems() * size_of(type_) + kAlignment - 1) / kAlignment * kAlignment;
  }
  file.sync();
  file.close();

  Message(graph).add_string(graph_field::name, "model");
  std::string bytes;
  Message model(bytes);
  model.add_int64(model_field::ir_version, kIrVersion);
  model.add_string(model_field::producer_name, "spillway");
  model.add_message(model_field::graph, graph);
  message(model, model_field::opset_import, [](Message& opset) { opset.add_int64(opset_field::version, kOperatorSet); });
  data::write_text(folder / "model.onnx", bytes);
}

}  // namespace spillway::models::onnx
