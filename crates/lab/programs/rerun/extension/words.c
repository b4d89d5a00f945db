// An extension of Python: how long the second word of a list is. A list may have fewer. FIX says what was made of that, as in
// `../edits.h`.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../edits.h"

static PyObject *second(PyObject *self, PyObject *list) {
    unrelated("second");
#if RIGHT
    if (PyList_Size(list) < 2)
        return PyLong_FromLong(0);
#elif WRONG
    if (PyList_Size(list) < 1)
        return PyLong_FromLong(0);
#endif
    PyObject *word = PyList_GetItem(list, 1);
    return PyLong_FromSsize_t(PyUnicode_GetLength(word));
}

static PyMethodDef methods[] = {{"second", second, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "words", NULL, -1, methods};

PyMODINIT_FUNC PyInit_words(void) { return PyModule_Create(&module); }
