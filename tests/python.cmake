# The Python module's own tests (python/tests, pytest), and its wheel on a machine that has no compiler. scripts/setup.sh --tests brings what they need.
add_test(NAME python/ModuleRelease.KeepsItsTests COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider --ignore=${PROJECT_SOURCE_DIR}/python/tests/test_onnx.py "--ignore-glob=${PROJECT_SOURCE_DIR}/python/tests/test_torch*" ${PROJECT_SOURCE_DIR}/python/tests)
set_tests_properties(python/ModuleRelease.KeepsItsTests PROPERTIES LABELS quick TIMEOUT 600 COST 150
  ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
add_test(NAME python/SoakKills.LeaveTheOldOrTheNew COMMAND ${Python_EXECUTABLE} -m pytest -q -s -p no:cacheprovider ${PROJECT_SOURCE_DIR}/python/tests/soak_kills.py)
set_tests_properties(python/SoakKills.LeaveTheOldOrTheNew PROPERTIES LABELS soak TIMEOUT 3600
  ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1")
# Beside PyTorch, where this Python has it.
add_test(NAME python/SoakCalls.GiveWhatPyTorchGives COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/python/tests/test_typed_as_in_torch.py)
set_tests_properties(python/SoakCalls.GiveWhatPyTorchGives PROPERTIES LABELS soak TIMEOUT 600
  ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_RANDOM_CALLS=2000")
# Models of PyTorch, where this Python has it or scripts/setup.sh --soak has brought it.
set(torch ${PROJECT_SOURCE_DIR}/build/tools/torch)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${torch}:${PROJECT_SOURCE_DIR}/build/tools/python ${Python_EXECUTABLE} -c "import torch, transformers"
                RESULT_VARIABLE no_torch OUTPUT_QUIET ERROR_QUIET)
if(no_torch)
  message(STATUS "Tests of PyTorch's models: no (scripts/setup.sh --soak brings PyTorch from PyPI)")
else()
  file(GLOB torch_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/tests/test_torch*.py ${PROJECT_SOURCE_DIR}/python/tests/soak_torch*.py)
  list(FILTER torch_tests EXCLUDE REGEX test_torch_gpu)  # which is one of the preset `emulated`
  foreach(file ${torch_tests})
    get_filename_component(name ${file} NAME_WE)
    add_test(NAME python/SoakTorch.${name} COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${file})
    set_tests_properties(python/SoakTorch.${name} PROPERTIES LABELS soak TIMEOUT 1800
      ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${torch}:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
  endforeach()
endif()
add_test(NAME python/WheelRelease.TrainsWithoutACompiler COMMAND ${PROJECT_SOURCE_DIR}/python/tests/wheel.sh ${PROJECT_BINARY_DIR} ${Python_EXECUTABLE})
set_tests_properties(python/WheelRelease.TrainsWithoutACompiler PROPERTIES LABELS quick TIMEOUT 600 COST 50)
# What export writes, computed by others.
execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${PROJECT_SOURCE_DIR}/build/tools/python ${Python_EXECUTABLE} -c "import onnxruntime"
                RESULT_VARIABLE no_onnxruntime OUTPUT_QUIET ERROR_QUIET)
if(no_onnxruntime)
  message(STATUS "Tests by onnxruntime: no (scripts/setup.sh --tests brings it from PyPI)")
else()
  add_test(NAME python/OnnxRelease.ComputesWhatPyTorchDoes
           COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/python/tests/test_onnx.py)
  set_tests_properties(python/OnnxRelease.ComputesWhatPyTorchDoes PROPERTIES LABELS quick TIMEOUT 600
    ENVIRONMENT "PYTHONPATH=${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_PROGRAM=$<TARGET_FILE:spillway>")
endif()
# The site, which has the notebooks as Jupyter ran them.
if(EXISTS ${PROJECT_SOURCE_DIR}/build/tools/site/requirements.txt)
  add_test(NAME e2e/SiteRelease.HasEveryPageAndAsksNobody COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/e2e/site.sh ${PROJECT_BINARY_DIR} ${Python_EXECUTABLE})
  set_tests_properties(e2e/SiteRelease.HasEveryPageAndAsksNobody PROPERTIES LABELS quick TIMEOUT 600 COST 100)
else()
  message(STATUS "Test of the site: no (scripts/setup.sh --tests brings MkDocs and Jupyter from PyPI)")
endif()
