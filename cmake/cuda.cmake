# The CUDA plug-in, liblockstep_cuda.so next to the command, if the toolkit and cuDNN are found. Tests run another plug-in in
# its place: tests/cuda_emulated.
include(CheckLanguage)

file(GLOB LK_GPU_KERNELS CONFIGURE_DEPENDS src/cuda/plugin/gpu_*.cu)
file(GLOB LK_GPU_LIBRARIES CONFIGURE_DEPENDS src/cuda/plugin/gpu_*.c)

# --- what is there ---------------------------------------------------------------------------------------------------

# Sets LK_CUDA_MISSING to the reason why there is no plug-in, or to nothing. CMake looks for nvcc only in $PATH and
# $CUDACXX, so the toolkit's own is named first.
function(lk_find_cuda)
  set(missing "")
  find_package(CUDAToolkit 12.0 QUIET)
  if(NOT CUDAToolkit_FOUND)
    list(APPEND missing "CUDA toolkit 12 or later")
  else()
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      list(APPEND missing "nvcc that works")
    endif()
    if(NOT TARGET CUDA::cublasLt)
      list(APPEND missing "cuBLASLt")
    endif()
  endif()
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
  if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
    list(APPEND missing "cuDNN 9")
  endif()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
  list(JOIN missing ", " missing)
  set(LK_CUDA_MISSING "${missing}" PARENT_SCOPE)
  set(LK_CUDA_VERSION "${CUDAToolkit_VERSION}" PARENT_SCOPE)
  set(LK_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR} PARENT_SCOPE)
endfunction()

if(NOT LK_WITH_CUDA)
  set(LK_CUDA_MISSING "switched off")
elseif(LK_SANITIZE)
  set(LK_CUDA_MISSING "sanitizers do not see a GPU")
else()
  lk_find_cuda()
endif()

# --- the plug-in -----------------------------------------------------------------------------------------------------

if(LK_CUDA_MISSING)
  message(STATUS "CUDA: no plug-in: ${LK_CUDA_MISSING}")
else()
  message(STATUS "CUDA: ${LK_CUDA_VERSION}")
  # Machine code for Ampere and Hopper, PTX for later GPUs. All from one PTX, since no kernel uses what only Hopper has, and
  # compiling each kernel to PTX twice takes longer.
  set(architectures "")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    set(architectures "--generate-code=arch=compute_80,code=[sm_80,sm_90,compute_80]")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # NCCL is optional: without it GPUs exchange by copies.
  set(kernels ${LK_GPU_KERNELS})
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    message(STATUS "NCCL: ${NCCL_LIBRARY}")
    list(FILTER kernels EXCLUDE REGEX "/gpu_without_nccl\\.cu$")
  else()
    message(STATUS "NCCL: not found")
    list(FILTER kernels EXCLUDE REGEX "/gpu_nccl\\.cu$")
  endif()
  add_library(lockstep_cuda MODULE ${kernels} ${LK_GPU_LIBRARIES})
  target_include_directories(lockstep_cuda PRIVATE include src)
  target_include_directories(lockstep_cuda SYSTEM PRIVATE ${LK_CUDA_INCLUDE_DIRS})
  # No fused multiply-adds: an update's bits are those of the plain C kernels.
  target_compile_options(lockstep_cuda PRIVATE
                         "$<$<COMPILE_LANGUAGE:CUDA>:${architectures};--fmad=false;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>")
  target_link_libraries(lockstep_cuda PRIVATE CUDA::cublasLt ${CUDNN_LIBRARY} ${CMAKE_DL_LIBS})
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    target_include_directories(lockstep_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_link_libraries(lockstep_cuda PRIVATE ${NCCL_LIBRARY})
    get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
  endif()
  target_link_options(lockstep_cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
  # CMake omits the toolkit's folder, which it believes to be known to the dynamic linker.
  get_filename_component(cudnn_folder ${CUDNN_LIBRARY} DIRECTORY)
  set(folders ${CUDAToolkit_LIBRARY_DIR} ${cudnn_folder} ${nccl_folder})
  list(REMOVE_DUPLICATES folders)
  set_target_properties(lockstep_cuda PROPERTIES NO_SONAME ON CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_VISIBILITY_PRESET hidden
                        CUDA_RUNTIME_LIBRARY Static LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                        BUILD_RPATH "${folders}" INSTALL_RPATH "${folders}")
  install(TARGETS lockstep_cuda LIBRARY DESTINATION ${LK_PLUGINS_DIR} COMPONENT cuda)
endif()
