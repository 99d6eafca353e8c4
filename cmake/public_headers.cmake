# The headers that programs include (docs/library.md). What they include is installed too, so that they compile, but may change.
set(SPILLWAY_PUBLIC_HEADERS
  # Errors, random keys, threads.
  base/error.h base/random.h base/thread_pool.h base/types.h
  # Devices, streams, and memory with a budget.
  device/device.h device/event.h device/gpu_queue.h device/memory_pool.h device/memory_source.h device/stream.h
  # Tensors.
  tensor/batch.h tensor/create.h tensor/dtype.h tensor/print.h tensor/shape.h tensor/storage.h tensor/tensor.h
  # Differentiation.
  autograd/anomaly.h autograd/gradient_check.h autograd/hook.h autograd/no_grad.h autograd/tape.h
  # Ops.
  ops/elementwise/dropout.h ops/elementwise/elementwise.h ops/elementwise/glu.h ops/elementwise/operators.h ops/elementwise/pointwise.h
  ops/experts/experts.h ops/images/batch_norm.h ops/images/conv.h ops/images/pool.h ops/layout/index.h ops/layout/scatter.h ops/layout/shape.h
  ops/losses/class_loss.h ops/losses/error_loss.h ops/losses/loss.h ops/losses/row_loss.h ops/products/einsum.h ops/products/linear.h
  ops/products/matmul.h ops/refuse.h ops/rows/axis.h ops/rows/norm.h ops/rows/reduce.h ops/sequence/attention.h ops/sequence/embedding.h
  ops/sequence/rope.h
  # Layers and models.
  nn/eager.h nn/hook.h nn/image_layers.h nn/layers.h nn/measure.h nn/module.h nn/parameter.h
  models/cifar_net.h models/config.h models/gpt2.h models/lora.h models/model.h models/presets.h models/resnet.h models/weights.h
  # Data.
  data/loader/loader.h data/loader/own_samples.h data/safetensors/safetensors.h data/tokenizer/tokenizer.h
  # Optimizers, for training without a plan.
  eager/optimizer.h optim/adamw.h optim/norm.h optim/rules/settings.h optim/schedule.h
  # Several ranks by hand.
  parallel/comm/communicator.h parallel/comm/communicator_local.h
  # The trainer.
  trainer/events/callbacks.h trainer/node/messages.h trainer/settings/config.h trainer/train/train.h trainer/trainer.h)

# Appends to `out` the headers and everything of ours that they include, as paths from the source folder.
function(with_includes out)
  set(todo ${ARGN})
  set(all "")
  while(todo)
    list(POP_FRONT todo header)
    set(file src/${header})
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${file})
      set(file ${header})
    endif()
    if(NOT file IN_LIST all)
      list(APPEND all ${file})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
      file(STRINGS ${PROJECT_SOURCE_DIR}/${file} lines REGEX "^#include \"")
      foreach(line ${lines})
        string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
        list(APPEND todo ${included})
      endforeach()
    endif()
  endwhile()
  set(${out} ${all} PARENT_SCOPE)
endfunction()
