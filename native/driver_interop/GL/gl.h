/* What cudaGL.h needs of OpenGL's header, which machines without graphics lack. */
#pragma once
typedef unsigned int GLenum;
typedef unsigned int GLuint;
