// An ONNX graph as it is put together, and the two files that it becomes: model.onnx with nodes and small constants, and model.onnx.data
// with the weights, each at a multiple of 64 bytes. Format: onnx.proto of https://github.com/onnx/onnx, IR version 8, operator set 17,
// which onnxruntime reads since 1.12. The weights are streamed: a few KiB of memory however large the model. One thread.
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

/// Name of a tensor within a graph.
using Value = std::string;
/// A dimension: its size, or the name of one that each call decides.
using Dimension = std::variant<i64, std::string>;
using Attribute = std::variant<i64, double, std::string, std::vector<i64>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

enum class ElementType { f32 = 1, int64 = 7, boolean = 9, f16 = 10 };  // onnx.TensorProto.DataType

class Graph {
 public:
  /// `type`: f32 or f16, of weights and of what nodes hand on.
  Graph(const PlainModel& model, DType type);

  const ModelConfig& config() const { return model_.config(); }
  bool is_half() const { return type_ == DType::f16; }

  void input(const Value& name, ElementType type, const std::vector<Dimension>& dimensions);
  void output(const Value& name, ElementType type, const std::vector<Dimension>& dimensions);

  /// One node's only output.
  Value node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes = {});
  std::vector<Value> nodes(const std::string& op, const std::vector<Value>& inputs, size_t outputs, const Attributes& attributes = {});
  /// A tensor under a second name, for an output.
  void name(const Value& value, const Value& as);

  /// Constants, equal ones once: whole numbers [n], one of them [], numbers of the graph's type [] and of f32 [shape].
  Value integers(const std::vector<i64>& values);
  Value integer(i64 value);
  Value number(double value);
  Value number_f32(double value);
  Value numbers_f32(const std::vector<double>& values, const std::vector<i64>& shape);

  /// The parameter's values, as it lies. Throws Error(bug) on a name that the model does not have.
  Value weight(const std::string& parameter);
  bool has_weight(const std::string& parameter) const { return parameters_.contains(parameter); }

  /// Writes both files. Throws Error(bug) where a parameter of the model was not used: the graph computes something else then; Error(io).
  void write(const std::filesystem::path& folder) const;

 private:
  std::string encoded_weight(const nn::Parameter& parameter, i64 offset) const;
  Value constant(ElementType type, const std::vector<i64>& shape, std::string bytes);

  const PlainModel& model_;
  DType type_;
  std::map<std::string, const nn::Parameter*> parameters_;
  std::set<std::string> used_;
  std::map<std::string, Value> constants_;               // by type, shape and bytes
  std::string inputs_, outputs_, nodes_, initializers_;  // messages of GraphProto, encoded
  i64 numbered_ = 0;
};

}  // namespace spillway::models::onnx
