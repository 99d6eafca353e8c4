// Lists the tensors of an exported Hugging Face folder and writes them. Parameters that such folders store as parts of a larger tensor
// (nn::Parameter::stored) are joined while they are written; the larger tensor is never held in memory.
#pragma once
#include <string>
#include <vector>

#include "data/safetensors/safetensors.h"
#include "models/export/weight_bytes.h"

namespace spillway::models {

/// Says where an exported folder has a parameter: in the tensor `tensor` of type `dtype`, either as a part of it or, if `part` is null,
/// alone.
struct ExportPlace {
  std::string tensor;
  const nn::StoredPart* part = nullptr;
  DType dtype = DType::f32;
};

/// Returns the place that the first form of the parameter (nn::Parameter::stored) gives it.
ExportPlace first_place(const nn::Parameter& parameter, DType dtype);

struct ExportTensor {
  struct Member {
    const nn::Parameter* parameter;
    const nn::StoredPart* part;
  };
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::vector<Member> members;  // one member without a part, or those that are parts of the tensor
  // If it is not empty, the tensor is written in MXFP4 (data/weights/mxfp4.h): `name` is that of its blocks and `scales` that of its
  // scales. `shape` is that of the values, and `dtype` does not matter.
  std::string scales = {};
  /// Returns the tensors that the file has: this one, or its blocks and scales.
  std::vector<data::TensorInfo> infos() const;
  i64 bytes() const;
};

/// Returns the tensors in the order of their first parameters. A tensor whose parameters have places of different types gets a type that
/// holds them all: f64 if one is f64, else f32.
std::vector<ExportTensor> export_tensors(const nn::Sequential& model, const std::function<ExportPlace(const nn::Parameter&)>& place);

/// Passes all bytes of the tensor to `write` in pieces of at most 4 MiB, of which each thread of the current stream holds one. The threads
/// call `write` concurrently and in any order. Throws Error(bug) if the parameters do not fill the tensor.
void write_tensor(const WeightSource& source, const ExportTensor& tensor, const WriteBytes& write);

/// Passes all bytes of the blocks and scales of a tensor in MXFP4 to the functions, as write_tensor() does.
void write_mxfp4(const WeightSource& source, const ExportTensor& tensor, const WriteBytes& blocks, const WriteBytes& scales);

}  // namespace spillway::models
