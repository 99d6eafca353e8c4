// The kernels behind update() of rules.h. Only files that implement update rules include this header. adamw_tile_paths.h explains why they
// use intrinsics in functions with a target attribute.
#pragma once
#include "optim/rules/rules.h"

namespace spillway::optim {

/// The number of elements whose multiples the vector kernels take: a multiple of the vector width of every instruction set.
constexpr i64 kVectorElems = 16;

/// The arrays of an update. old[0] is the weight, old[k] the rule's k-th state array.
/// The new values are written to `next`: the memory of `old`, or other memory.
template <class T>
struct Arrays {
  const T* old[1 + kMaxStateArrays];
  T* next[1 + kMaxStateArrays];
  const T* gradient;
};

/// Updates the first `elems` elements with the fastest combination of update_scalar,
/// update_avx2 and update_avx512 that `isa` (already resolved) allows.
template <class T>
void update_arrays(Rule rule, const Arrays<T>& arrays, i64 elems, const Scalars<double>& scalars, Isa isa);

/// update_scalar(), update_avx2() and update_avx512() update the elements [begin, end). The AVX2 and AVX-512 versions take multiples of
/// kVectorElems elements.
template <class T>
void update_scalar(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars);
template <class T>
void update_avx2(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars);
template <class T>
void update_avx512(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars);

/// Calls body.operator()<rule>() with the rule as a template argument.
template <class Body>
void for_rule(Rule rule, Body&& body) {
  switch (rule) {
    case Rule::sgd:
      return body.template operator()<Rule::sgd>();
    case Rule::sgd_momentum:
      return body.template operator()<Rule::sgd_momentum>();
    case Rule::sgd_nesterov:
      return body.template operator()<Rule::sgd_nesterov>();
    case Rule::adam:
      return body.template operator()<Rule::adam>();
    case Rule::adam_amsgrad:
      return body.template operator()<Rule::adam_amsgrad>();
    case Rule::adamw:
      return body.template operator()<Rule::adamw>();
    case Rule::adamw_amsgrad:
      return body.template operator()<Rule::adamw_amsgrad>();
    case Rule::adagrad:
      return body.template operator()<Rule::adagrad>();
    case Rule::rmsprop:
      return body.template operator()<Rule::rmsprop>();
    case Rule::rmsprop_momentum:
      return body.template operator()<Rule::rmsprop_momentum>();
    case Rule::rmsprop_centered:
      return body.template operator()<Rule::rmsprop_centered>();
    case Rule::rmsprop_centered_momentum:
      return body.template operator()<Rule::rmsprop_centered_momentum>();
    case Rule::lion:
      return body.template operator()<Rule::lion>();
    case Rule::muon:       // Muon has separate kernels (rules/muon.h)
    case Rule::adafactor:  // Adafactor has separate kernels (rules/adafactor.h)
    case Rule::adafactor_factored:
      return;
  }
}

}  // namespace spillway::optim
