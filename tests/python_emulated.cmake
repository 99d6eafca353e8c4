# Python's tests of tensors and models on emulated GPUs: the preset `emulated`, of which nothing else is built.
find_package(Python 3.10 COMPONENTS Interpreter)
set(tests ${PROJECT_SOURCE_DIR}/python/tests)
add_test(NAME python/SoakGpu.KeepsItsTests
         COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${tests}/test_gpu.py ${tests}/test_arrays.py ${tests}/test_autograd.py ${tests}/test_models.py)
set_tests_properties(python/SoakGpu.KeepsItsTests PROPERTIES LABELS soak TIMEOUT 1200 FAIL_REGULAR_EXPRESSION "skipped"
  ENVIRONMENT "SPILLWAY_EMULATED_GPUS=2;PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
# Models of PyTorch, where this Python has it or scripts/setup.sh --soak has brought it.
set(torch ${PROJECT_SOURCE_DIR}/build/tools/torch)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${torch} ${Python_EXECUTABLE} -c "import torch"
                RESULT_VARIABLE no_torch OUTPUT_QUIET ERROR_QUIET)
if(no_torch)
  message(STATUS "Tests of PyTorch's models on emulated GPUs: no (scripts/setup.sh --soak brings PyTorch from PyPI)")
else()
  add_test(NAME python/SoakTorchGpu.KeepsItsTests COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${tests}/test_torch_gpu.py)
  set_tests_properties(python/SoakTorchGpu.KeepsItsTests PROPERTIES LABELS soak TIMEOUT 1200 FAIL_REGULAR_EXPRESSION "skipped"
    ENVIRONMENT "SPILLWAY_EMULATED_GPUS=2;PYTHONPATH=${PROJECT_BINARY_DIR}/python:${torch}:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
endif()
