// Builds an ONNX graph and writes its two files: model.onnx with nodes and small constants, and model.onnx.data with the weights, each at a
// multiple of 64 bytes. The format is onnx.proto of https://github.com/onnx/onnx, IR version 8, operator set 17, which onnxruntime reads
// since 1.12. Weights are streamed, so memory does not grow with the model. Used by one thread.
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/export/plain_model.h"

namespace spillway::models::onnx {

/// The name of a tensor within a graph.
using Value = std::string;
/// A dimension of a tensor: its size, or the name of a size that may differ between calls.
using Dimension = std::variant<i64, std::string>;
using Attribute = std::variant<i64, double, std::string, std::vector<i64>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

enum class ElementType { f32 = 1, int64 = 7, boolean = 9, f16 = 10 };  // the values are those of onnx.TensorProto.DataType

class Graph {
 public:
  /// Begins a graph. `type`, f32 or f16, is the type of the weights and of the values between nodes.
  Graph(const PlainModel& model, DType type);

  const ModelConfig& config() const { return model_.config(); }
  bool is_half() const { return type_ == DType::f16; }

  void input(const Value& name, ElementType type, const std::vector<Dimension>& dimensions);
  void output(const Value& name, ElementType type, const std::vector<Dimension>& dimensions);

  /// Adds a node and returns its only output.
  Value node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes = {});
  std::vector<Value> nodes(const std::string& op, const std::vector<Value>& inputs, size_t outputs, const Attributes& attributes = {});
  /// Gives a tensor a second name, for a graph output.
  void name(const Value& value, const Value& as);

  /// Functions that return constants; equal constants are stored once. integers() returns int64 of shape [n], integer() an int64 scalar,
  /// number() a scalar of the graph's type, number_f32() an f32 scalar, and numbers_f32() f32 of the given shape.
  Value integers(const std::vector<i64>& values);
  Value integer(i64 value);
  Value number(double value);
  Value number_f32(double value);
  Value numbers_f32(const std::vector<double>& values, const std::vector<i64>& shape);

  /// Returns the parameter's values in the parameter's own layout. Throws Error(bug) if the model has no parameter of that name.
  Value weight(const std::string& parameter);
  bool has_weight(const std::string& parameter) const { return parameters_.contains(parameter); }

  /// Writes model.onnx and model.onnx.data. Throws Error(bug) if a parameter of the model was not
  /// used, because the graph then does not compute what the model computes. Throws Error(io).
  void write(const std::filesystem::path& folder) const;

 private:
  std::string encoded_weight(const nn::Parameter& parameter, i64 offset) const;
  Value constant(ElementType type, const std::vector<i64>& shape, std::string bytes);

  const PlainModel& model_;
  DType type_;
  std::map<std::string, const nn::Parameter*> parameters_;
  std::set<std::string> used_;
  std::map<std::string, Value> constants_;               // the constants, by type, shape and bytes
  std::string inputs_, outputs_, nodes_, initializers_;  // encoded fields of the message GraphProto
  i64 numbered_ = 0;
};

}  // namespace spillway::models::onnx
